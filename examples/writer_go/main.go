// Command writer writes numbered rows into an Iceberg or Delta table, and publishes them by the contract for
// writers (docs/writers/contract.md). It keeps no state: after a crash, a new process takes its region over,
// and continues at the committed position. Each row is in the table once.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"time"
)

const (
	beat     = 5 * time.Second  // between two heartbeats
	patience = 60 * time.Second // for an answer, before the same question is sent again
	pause    = 2 * time.Second  // before a question that was refused for now
)

func main() {
	driver := &Driver{Writer: "w-0", Incarnation: rand.Text(), NewID: rand.Text}
	bootstrap := flag.String("bootstrap", "localhost:9092", "brokers, with commas between them")
	prefix := flag.String("prefix", "sluicegate", "prefix of the topics")
	flag.StringVar(&driver.Stream, "stream", "flights", "stream")
	flag.StringVar(&driver.Region, "region", "EU", "region, which is also the value of the column origin")
	regions := flag.String("regions", "EU", "all regions of the stream, with commas between them")
	flag.StringVar(&driver.Format, "format", "iceberg", "iceberg or delta")
	location := flag.String("location", "", "folder of the table that gets the rows")
	flag.StringVar(&driver.Table, "table", "", "name of that table, if it is a further one of the stream, for iceberg")
	anchor := flag.String("anchor", "", "folder of the stream's own table then")
	flag.Int64Var(&driver.SchemaID, "schema-id", 0, "id of the table's schema, for iceberg")
	flag.Int64Var(&driver.SpecID, "spec-id", 0, "id of the table's partition spec, for iceberg")
	flag.StringVar(&driver.TableIdentity, "table-identity", "", "identity of the table")
	first := flag.Int64("first", 0, "id of row 0")
	rows := flag.Int64("rows", 1000, "rows of the source")
	most := flag.Int64("most", 100, "rows of a checkpoint at most")
	ahead := flag.Int64("ahead", 10, "completed checkpoints that are not committed at most")
	flag.Parse()
	driver.Regions, driver.Location = strings.Split(*regions, ","), "file://"+*location
	driver.Anchor = "file://" + cmp.Or(*anchor, *location)
	if driver.Format == "delta" {
		driver.SchemaID = deltaSchemaID()
	}
	write := func(name string, end int64) (File, error) {
		return writeFile(driver.Format, *location, name, driver.Region, *first, driver.Next, end)
	}
	err := run(context.Background(), driver, strings.Split(*bootstrap, ","), *prefix, *rows, *most, *ahead, write)
	if err != nil {
		fmt.Println("stopped:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, d *Driver, brokers []string, prefix string, rows, most, ahead int64,
	write func(string, int64) (File, error)) error {
	log, err := OpenLog(ctx, brokers, prefix, d.Stream)
	if err != nil {
		return err
	}
	if err := register(ctx, d, log); err != nil {
		return err
	}
	fmt.Println("begins at row", d.Next)
	go beats(ctx, d, log)
	for d.Next < rows {
		err = checkpoint(ctx, d, log, min(d.Next+1+mathrand.Int64N(most), rows), write)
		if err == nil {
			err = hear(d, log, ahead)
		}
		if err != nil {
			return err
		}
	}
	if err := log.Publish(ctx, d.Closed()); err != nil {
		return err
	}
	return hear(d, log, 0) // the final checkpoint is committed like any other
}

// register takes the region over, and waits for the answer. Nothing is written before it.
func register(ctx context.Context, d *Driver, log *Log) error {
	for question := d.Registration(log.End); ; {
		if err := log.Publish(ctx, question); err != nil {
			return err
		}
		answer, err := (*Answer)(nil), error(nil)
		for late := time.After(patience); err == nil && (answer == nil || answer.Registration != question.ID); {
			answer, err = log.Hear(d, late)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			continue // the same event again: it is always answered
		}
		if err == nil {
			err = d.Begin(*answer)
		}
		var refused *Refused
		if !errors.As(err, &refused) || !refused.Passes() {
			return err
		}
		time.Sleep(pause)
		question = d.Registration(log.End) // a new question, with a new id
	}
}

// checkpoint writes the rows before `end`. A crash at any place leaves a file that no completion names.
func checkpoint(ctx context.Context, d *Driver, log *Log, end int64, write func(string, int64) (File, error)) error {
	attempt := rand.Text()
	file, err := write(d.FileName(attempt), end)
	if err != nil {
		return err
	}
	return log.Publish(ctx, d.Completed(d.Written(attempt, []File{file}), false, end))
}

// hear takes all new messages into account, and waits until at most `ahead` checkpoints are not committed.
func hear(d *Driver, log *Log, ahead int64) error {
	for d.Ahead() > ahead || len(log.Feed) > 0 {
		if _, err := log.Hear(d, nil); err != nil {
			return err
		}
	}
	return nil
}

// beats sends heartbeats until the process ends. After a failure, the next one may arrive.
func beats(ctx context.Context, d *Driver, log *Log) {
	for tick := time.Tick(beat); ; <-tick {
		_ = log.Publish(ctx, d.Heartbeat())
	}
}
