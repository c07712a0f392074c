package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The conversation of the documents (`python -m sluicegate.documents DIR`): this writer makes each event of it, and
// understands each answer.

type message struct {
	Topic, Meaning, Key, Value string
	Headers                    map[string]string
}

type script struct {
	t        *testing.T
	messages []message
	at       int
}

func open(t *testing.T) *script {
	name := os.Getenv("SLUICEGATE_CONVERSATION")
	if name == "" {
		t.Skip("SLUICEGATE_CONVERSATION names no conversation.json")
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var found struct{ Messages []message }
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return &script{t: t, messages: found.Messages}
}

func (s *script) next(topic string) message {
	s.t.Helper()
	found := s.messages[s.at]
	s.at++
	if found.Topic != topic {
		s.t.Fatalf("message %d is of the topic %s, not %s: %s", s.at, found.Topic, topic, found.Meaning)
	}
	return found
}

// sends compares the next event of the conversation with one that this writer makes.
func (s *script) sends(event Event) {
	s.t.Helper()
	wanted := s.next("events")
	event.ID = wanted.Headers["ce_id"]
	record, err := event.Record()
	if err != nil {
		s.t.Fatal(err)
	}
	found, _ := headers(record)
	for _, own := range []string{"ce_source", "ce_time"} {
		delete(found, own)
		delete(wanted.Headers, own)
	}
	if string(record.Key) != wanted.Key || !reflect.DeepEqual(found, wanted.Headers) {
		s.t.Fatalf("message %d: %s %v, not %s %v", s.at, record.Key, found, wanted.Key, wanted.Headers)
	}
	ours, theirs := map[string]any{}, map[string]any{}
	read(s.t, record.Value, &ours)
	read(s.t, []byte(wanted.Value), &theirs)
	alike(s.t, s.at, ours, theirs)
}

// alike compares two bodies. A field that this writer leaves out has its default in the other one.
func alike(t *testing.T, at int, ours, theirs any) {
	t.Helper()
	one, isMap := ours.(map[string]any)
	other, areMaps := theirs.(map[string]any)
	if isMap && areMaps {
		for name, value := range other {
			if found, there := one[name]; there {
				alike(t, at, found, value)
			} else if !reflect.ValueOf(&value).Elem().IsZero() && value != false && value != "" && value != 0.0 &&
				!isEmpty(value) {
				t.Fatalf("message %d: %s = %v is missing", at, name, value)
			}
		}
		return
	}
	some, isList := ours.([]any)
	others, areLists := theirs.([]any)
	if isList && areLists && len(some) == len(others) {
		for n := range some {
			alike(t, at, some[n], others[n])
		}
		return
	}
	if !reflect.DeepEqual(ours, theirs) {
		t.Fatalf("message %d: %v, not %v", at, ours, theirs)
	}
}

func isEmpty(value any) bool {
	found := reflect.ValueOf(value)
	return (found.Kind() == reflect.Slice || found.Kind() == reflect.Map) && found.Len() == 0
}

func read(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// hears gives the next message of the coordinator to a driver.
func (s *script) hears(d *Driver) (*Answer, error) {
	s.t.Helper()
	found := s.next("commits")
	record := &kgo.Record{}
	for name, value := range found.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	attributes, kind := headers(record)
	return d.Hear(kind, attributes["ce_stream"], attributes["ce_region"], []byte(found.Value))
}

func (s *script) begins(d *Driver) error {
	s.t.Helper()
	answer, err := s.hears(d)
	if err != nil || answer == nil {
		s.t.Fatal(answer, err)
	}
	return d.Begin(*answer)
}

func (s *script) checkpoint(d *Driver, end int64) {
	s.t.Helper()
	attempt, region := s.messages[s.at].Headers["ce_attempt"], d.Region
	file := File{Path: path.Join("data", "region="+region, d.FileName(attempt)), Size: 1873, Rows: end - d.Next,
		Partition: map[string]*string{"region": &region}}
	written := d.Written(attempt, []File{file})
	published := s.messages[s.at].Headers["ce_type"] == typePrefix+"files.written"+typeSuffix
	if published {
		s.sends(written)
		written.ID = s.messages[s.at-1].Headers["ce_id"]
	}
	s.sends(d.Completed(written, published, end))
}

func TestConversation(t *testing.T) {
	s := open(t)
	driver := func() *Driver {
		return &Driver{Stream: "flights", Region: "EWR", Writer: "w-0", Regions: []string{"EWR"},
			Format: "iceberg", Anchor: "file:///lake/flights", Location: "file:///lake/flights",
			Incarnation: s.messages[s.at].Headers["ce_incarnation"], NewID: rand.Text}
	}
	one := driver()
	s.sends(one.Registration(17))
	if err := s.begins(one); err != nil || one.Next != 0 {
		t.Fatal(one.Next, err)
	}
	s.sends(one.Heartbeat())
	s.checkpoint(one, 100)
	if _, err := s.hears(one); err != nil || one.Ahead() != 0 {
		t.Fatal(one.Ahead(), err)
	}
	s.checkpoint(one, 200)
	if one.Ahead() != 1 {
		t.Fatal(one.Ahead())
	}
	two := driver()
	s.sends(two.Registration(23))
	answered := s.at
	if err := s.begins(two); err != nil || two.Next != 100 || two.Number() != 1 {
		t.Fatal(two.Next, two.Number(), err)
	}
	s.at = answered
	if _, err := s.hears(one); !errors.Is(err, ErrEnded) {
		t.Fatal("the first process does not stop:", err)
	}
	s.checkpoint(two, 250)
	late := driver()
	s.sends(late.Registration(22))
	refused, answered := &Refused{}, s.at
	if err := s.begins(late); !errors.As(err, &refused) || refused.Code != "taken-over-since" || refused.Passes() {
		t.Fatal(err)
	}
	s.at = answered
	if _, err := s.hears(two); err != nil {
		t.Fatal("a refusal of another process stops the one that works:", err)
	}
	unknown := []byte(`{"registration": "x", "accepted": false, "problem": {"code": "unknown-stream"}, "live": null}`)
	if _, err := two.Hear("registration.answered", "flights", "EWR", unknown); err != nil {
		t.Fatal("a refusal without a position stops the driver:", err)
	}
	s.sends(two.Closed())
	if _, err := s.hears(two); err != nil || two.Ahead() != 0 || two.Next != 250 {
		t.Fatal(two.Ahead(), two.Next, err)
	}
	if s.at != len(s.messages) {
		t.Fatalf("%d messages are left", len(s.messages)-s.at)
	}
}
