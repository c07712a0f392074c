package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Position is a checkpoint of a region.
type Position struct {
	Incarnation string `json:"incarnation"`
	Checkpoint  int64  `json:"checkpoint"`
	Digest      string `json:"digest"`
}

// Answer answers a registration. Fields that this writer does not use are ignored.
type Answer struct {
	Registration string `json:"registration"`
	Accepted     bool   `json:"accepted"`
	Problem      *struct {
		Code string `json:"code"`
	} `json:"problem"`
	Reason        string    `json:"reason"`
	Committed     *Position `json:"committed"`
	SourceOffsets string    `json:"source_offsets"`
	Live          string    `json:"live"`
	Run           string    `json:"run"`
}

// File is a data file.
type File struct {
	Path      string             `json:"path"`
	Size      int64              `json:"size"`
	Rows      int64              `json:"rows"`
	Partition map[string]*string `json:"partition"`
}

// Event is an event of a writer, before it is a Kafka record.
type Event struct {
	ID, Type, Stream, Region, Incarnation string
	Checkpoint                            int64 // NoCheckpoint if the type has none
	Writer, Attempt                       string
	Table                                 string // a further table of the stream; empty: the stream's own
	Files                                 []File
	Body                                  map[string]any
}

// NoCheckpoint is the checkpoint of events that have none.
const NoCheckpoint = -1

const (
	typePrefix, typeSuffix = "sluicegate.", ".v5"
	source                 = "/writer-go"
)

// Record returns the event as a record of CloudEvents' binary mode. The caller sets topic and partition.
func (e Event) Record() (*kgo.Record, error) {
	value, err := json.Marshal(e.Body)
	if err != nil {
		return nil, err
	}
	key := e.Stream + "/" + e.Region
	names := []string{"ce_id", "ce_type", "ce_specversion", "ce_source", "content-type",
		"ce_stream", "ce_region", "ce_incarnation"}
	texts := []string{e.ID, typePrefix + e.Type + typeSuffix, "1.0", source, "application/json",
		e.Stream, e.Region, e.Incarnation}
	if e.Checkpoint != NoCheckpoint {
		number := strconv.FormatInt(e.Checkpoint, 10)
		key += "/" + number
		names, texts = append(names, "ce_checkpoint"), append(texts, number)
	}
	if e.Writer != "" {
		var rows, size int64
		for _, file := range e.Files {
			rows, size = rows+file.Rows, size+file.Size
		}
		names = append(names, "ce_writer", "ce_attempt", "ce_files", "ce_rows", "ce_bytes")
		texts = append(texts, e.Writer, e.Attempt, strconv.Itoa(len(e.Files)),
			strconv.FormatInt(rows, 10), strconv.FormatInt(size, 10))
	}
	if e.Table != "" {
		names, texts = append(names, "ce_table"), append(texts, e.Table)
	}
	record := &kgo.Record{Key: []byte(key), Value: value}
	for at, name := range names {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(texts[at])})
	}
	return record, nil
}

// PartitionOf returns the partition of a stream: no default of a client does that.
func PartitionOf(stream string, partitions int) int32 {
	return int32(crc32.ChecksumIEEE([]byte(stream)) % uint32(partitions))
}

// FileName returns the name of the only file of an attempt.
func FileName(stream, region, incarnation string, checkpoint int64, writer, attempt string) string {
	text := fmt.Sprintf("%s/%s/%s/%d/%s/%s", stream, region, incarnation, checkpoint, writer, attempt)
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:32]
	shown := regexp.MustCompile("[^A-Za-z0-9]").ReplaceAllString(incarnation, "")
	return fmt.Sprintf("data-%s-%.16s-%d-0.parquet", digest, shown, checkpoint)
}
