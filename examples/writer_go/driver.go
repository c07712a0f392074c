package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrEnded means that another process has taken the region over, or that an operator has ended the incarnation.
// What this process has not committed is discarded, and it must write nothing any more.
var ErrEnded = errors.New("the incarnation has ended")

// Refused is a registration that the coordinator has refused.
type Refused struct{ Code, Reason string }

func (r *Refused) Error() string { return fmt.Sprintf("refused (%s): %s", r.Code, r.Reason) }

// Passes tells whether the same question can have another answer soon.
func (r *Refused) Passes() bool {
	return r.Code == "no-policy" || r.Code == "base-unresolved" || r.Code == "assignment-unresolved"
}

// offsetsKind says which source offsets this writer writes: the number of the next row.
const offsetsKind = "numbered-rows"

// Driver numbers the checkpoints of one region. It has no state that outlives its process: the coordinator's
// answer says where the source continues. It does no input or output.
type Driver struct {
	Stream, Region, Writer string
	Regions                []string
	Incarnation            string        // random for each process
	NewID                  func() string // ids of events
	Anchor                 string        // location of the stream's own table, as a URI
	Table                  string        // name of the further table that gets the rows; empty: the stream's own
	Format, Location       string        // of the table that gets the rows
	SchemaID, SpecID       int64
	TableIdentity          string

	Next      int64     // number of the next row of the source
	Last      *Position // newest checkpoint, which the next one names as its predecessor
	Committed *Position // where the region stands in the newest commit
	run       string    // id of the accepted registration; empty before
}

func (d *Driver) event(kind string, checkpoint int64, body map[string]any) Event {
	return Event{ID: d.NewID(), Type: kind, Stream: d.Stream, Region: d.Region, Incarnation: d.Incarnation,
		Checkpoint: checkpoint, Body: body}
}

// Registration takes the region over. The end is that of the stream's partition of the events topic; this process
// has fetched it since its start. So of two processes one wins, and a frozen one never ends the one that works.
func (d *Driver) Registration(end int64) Event {
	return d.event("region.registered", NoCheckpoint, map[string]any{
		"takes_over": end, "assignment": map[string]any{"number": 0, "regions": d.Regions},
		"table": d.Anchor, "tables": strings.Fields(d.Table), "bounded": true, "offsets_kind": offsetsKind})
}

// Begin continues at the position of an answer. It returns a Refused, or another error if it cannot continue there.
func (d *Driver) Begin(answer Answer) error {
	if !answer.Accepted {
		refused := &Refused{Reason: answer.Reason}
		if answer.Problem != nil {
			refused.Code = answer.Problem.Code
		}
		return refused
	}
	var place struct{ Next int64 }
	if answer.Committed != nil {
		if err := json.Unmarshal([]byte(answer.SourceOffsets), &place); err != nil {
			return fmt.Errorf("cannot continue at the source offsets %q: %w", answer.SourceOffsets, err)
		}
	}
	d.run, d.Next, d.Last, d.Committed = answer.Registration, place.Next, answer.Committed, answer.Committed
	return nil
}

// Number returns the number of the next checkpoint.
func (d *Driver) Number() int64 {
	if d.Last == nil {
		return 0
	}
	return d.Last.Checkpoint + 1
}

// FileName returns the name of the file of an attempt at the next checkpoint.
func (d *Driver) FileName(attempt string) string {
	return FileName(d.Stream, d.Region, d.Incarnation, d.Number(), d.Writer, attempt)
}

// Written lists the files of the attempt that has won. They are durable. Files that do not fit into the completion are
// published by this event before it.
func (d *Driver) Written(attempt string, files []File) Event {
	event := d.event("files.written", d.Number(), map[string]any{"format": d.Format, "location": d.Location,
		"schema_id": d.SchemaID, "spec_id": d.SpecID, "table_identity": d.TableIdentity, "files": files})
	event.Writer, event.Attempt, event.Table, event.Files = d.Writer, attempt, d.Table, files
	return event
}

// Completed completes the next checkpoint, which has the rows before `end`, and advances. The completion has the files
// in it, or it names the event that has them and that was published before.
func (d *Driver) Completed(written Event, published bool, end int64) Event {
	digest := fmt.Sprintf("rows:%d-%d", d.Next, end)
	body := map[string]any{"events": []string{}, "files": written.Body,
		"predecessor": d.Last, "source_digest": digest, "source_offsets": fmt.Sprintf(`{"next":%d}`, end)}
	event := written
	if published {
		body["events"], body["files"] = []string{written.ID}, nil
		event = d.event("", d.Number(), nil)
	}
	event.Type, event.Body = "checkpoint.completed", body
	d.Last = &Position{Incarnation: d.Incarnation, Checkpoint: d.Number(), Digest: digest}
	d.Next = end
	return event
}

// Heartbeat shows that the process lives. This writer is never idle before its end.
func (d *Driver) Heartbeat() Event {
	return d.event("region.heartbeat", NoCheckpoint, map[string]any{"interval": beat.Milliseconds(), "run": d.run})
}

// Closed ends the region: its source has ended.
func (d *Driver) Closed() Event {
	body := map[string]any{"run": d.run, "final": nil} // nil: this incarnation has completed nothing
	if d.Last != nil && d.Last.Incarnation == d.Incarnation {
		body["final"] = d.Last.Checkpoint
	}
	return d.event("region.closed", NoCheckpoint, body)
}

// Ahead returns how many checkpoints are completed and not committed.
func (d *Driver) Ahead() int64 {
	if d.Last == nil || d.Committed == nil {
		return d.Number()
	}
	return d.Last.Checkpoint - d.Committed.Checkpoint
}

// Hear takes a message of the commits topic into account. It returns the answer to a registration of this process,
// if the message is one, and ErrEnded if the driver must stop.
func (d *Driver) Hear(kind, stream, region string, value []byte) (*Answer, error) {
	if stream != d.Stream {
		return nil, nil
	}
	switch kind {
	case "registration.answered":
		var answer Answer
		if err := json.Unmarshal(value, &answer); err != nil || region != d.Region {
			return nil, err
		}
		if d.run == "" {
			return &answer, nil
		}
		if answer.Live == "" || answer.Live == d.Incarnation && answer.Run == d.run {
			return nil, nil // a refusal may come from a coordinator that does not know the stream
		}
		return nil, ErrEnded
	case "incarnations.ended":
		var ended struct{ Incarnations map[string]string }
		err := json.Unmarshal(value, &ended)
		if err == nil && ended.Incarnations[d.Region] == d.Incarnation {
			err = ErrEnded
		}
		return nil, err
	case "commit.visible", "commit.partially_visible":
		var committed struct{ Cut map[string]Position }
		err := json.Unmarshal(value, &committed)
		if position, found := committed.Cut[d.Region]; found && d.run != "" {
			d.Committed = &position
		}
		return nil, err
	}
	return nil, nil // another kind is no concern of a writer
}
