package event

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

type wire struct {
	At       Stamp           `json:"at"`
	Target   string          `json:"target,omitempty"`
	Replayed bool            `json:"replayed,omitempty"`
	Kind     Kind            `json:"kind"`
	Data     json.RawMessage `json:"data"`
}

// Encoder writes events as JSON, one a line.
type Encoder struct{ enc *json.Encoder }

// NewEncoder returns an Encoder on w.
func NewEncoder(w io.Writer) *Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &Encoder{enc: enc}
}

// Encode writes one event.
func (e *Encoder) Encode(ev Event) error {
	data, err := json.Marshal(ev.Data)
	if err != nil {
		return fmt.Errorf("event %s: %w", ev.Data.Kind(), err)
	}
	return e.enc.Encode(wire{At: ev.At, Target: ev.Target, Replayed: ev.Replayed, Kind: ev.Data.Kind(), Data: data})
}

// Decoder reads what an Encoder wrote. Lines may be of any length.
type Decoder struct {
	r    *bufio.Reader
	line int
}

// NewDecoder returns a Decoder on r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: bufio.NewReader(r)} }

// Decode reads one event. It returns io.EOF after the last one, and an error
// with the line's number for anything that is no event.
func (d *Decoder) Decode() (Event, error) {
	for {
		b, err := d.r.ReadBytes('\n')
		if len(b) == 0 && err != nil {
			return Event{}, err
		}
		d.line++
		if len(b) == 1 && b[0] == '\n' {
			continue
		}
		ev, derr := decode(b)
		if derr != nil {
			return Event{}, fmt.Errorf("line %d: %w", d.line, derr)
		}
		return ev, nil
	}
}

func decode(b []byte) (Event, error) {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return Event{}, fmt.Errorf("not an event: %w", err)
	}
	data, err := newData(w.Kind)
	if err != nil {
		return Event{}, err
	}
	if err := json.Unmarshal(w.Data, data); err != nil {
		return Event{}, fmt.Errorf("%s: %w", w.Kind, err)
	}
	return Event{At: w.At, Target: w.Target, Replayed: w.Replayed, Data: data}, nil
}

func newData(k Kind) (Data, error) {
	switch k {
	case KindLine:
		return new(Line), nil
	case KindUnitMessage:
		return new(UnitMessage), nil
	case KindUnitState:
		return new(UnitState), nil
	case KindGap:
		return new(Gap), nil
	case KindEarlier:
		return new(Earlier), nil
	case KindGPU:
		return new(GPUSample), nil
	case KindHealth:
		return new(HealthSample), nil
	case KindHost:
		return new(HostSample), nil
	case KindSource:
		return new(SourceState), nil
	case KindWatermark:
		return new(Watermark), nil
	case KindTick:
		return new(Tick), nil
	case KindBaseline:
		return new(Baseline), nil
	}
	return nil, fmt.Errorf("unknown kind %q", k)
}
