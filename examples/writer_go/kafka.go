package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Log is the events topic and the commits topic of one stream.
type Log struct {
	client                  *kgo.Client
	stream, events, commits string
	partition               int32
	End                     int64            // of the stream's partition of the events topic, at the start of the process
	Feed                    chan *kgo.Record // messages of the commits topic, from the end that it had at the start
	Failed                  chan error
}

// OpenLog connects, and reads the commits topic from its present end, so that no answer is missed.
func OpenLog(ctx context.Context, brokers []string, prefix, stream string) (*Log, error) {
	// The producer is idempotent, and repeats a record until it is acknowledged.
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	log := &Log{client: client, stream: stream, events: prefix + ".events", commits: prefix + ".commits",
		Feed: make(chan *kgo.Record, 64), Failed: make(chan error, 1)}
	if log.partition, log.End, err = log.home(ctx, log.events); err != nil {
		return nil, err
	}
	partition, end, err := log.home(ctx, log.commits)
	if err != nil {
		return nil, err
	}
	from := map[string]map[int32]kgo.Offset{log.commits: {partition: kgo.NewOffset().At(end)}}
	reader, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	go log.follow(ctx, reader)
	return log, nil
}

func (l *Log) follow(ctx context.Context, reader *kgo.Client) {
	for {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			l.Failed <- err
			return
		}
		fetches.EachRecord(func(record *kgo.Record) { l.Feed <- record })
	}
}

// Publish appends an event, and returns when Kafka has acknowledged it.
func (l *Log) Publish(ctx context.Context, event Event) error {
	record, err := event.Record()
	if err != nil {
		return err
	}
	record.Topic, record.Partition = l.events, l.partition
	return l.client.ProduceSync(ctx, record).FirstErr()
}

// home returns the stream's partition of a topic, and the end of it.
func (l *Log) home(ctx context.Context, topic string) (int32, int64, error) {
	found, err := kadm.NewClient(l.client).ListEndOffsets(ctx, topic)
	if err == nil {
		err = found.Error()
	}
	if err != nil {
		return 0, 0, err
	}
	partition := PartitionOf(l.stream, len(found[topic]))
	return partition, found[topic][partition].Offset, nil
}

// headers returns the headers of a record, and its type without prefix and version.
func headers(record *kgo.Record) (map[string]string, string) {
	found := map[string]string{}
	for _, each := range record.Headers {
		found[each.Key] = string(each.Value)
	}
	kind, isOfVersion := strings.CutSuffix(strings.TrimPrefix(found["ce_type"], typePrefix), typeSuffix)
	if !isOfVersion {
		return found, ""
	}
	return found, kind
}

// Hear gives the next message of the commits topic to the driver. It returns the answer that the message is, if it
// is one. `late` ends the wait.
func (l *Log) Hear(d *Driver, late <-chan time.Time) (*Answer, error) {
	select {
	case record := <-l.Feed:
		found, kind := headers(record)
		return d.Hear(kind, found["ce_stream"], found["ce_region"], record.Value)
	case err := <-l.Failed:
		return nil, err
	case <-late:
		return nil, context.DeadlineExceeded
	}
}
