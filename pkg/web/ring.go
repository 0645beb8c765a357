package web

// The ring holds at least what one batch of the journal's reader can bring: at
// most 1,000 entries, each with a change of state, and what is found in them.
const (
	ringEvents = 2048
	ringBytes  = 3 << 19
)

// frame is an event as it goes over the wire, with the unit that it is about.
type frame struct {
	unit string
	text []byte
}

// ring holds the newest events. They are numbered from 1, without a hole.
type ring struct {
	frames []frame
	// oldest is the number of the first event held, next that of the one to come.
	oldest, next uint64
	bytes        int
}

func newRing() ring { return ring{frames: make([]frame, ringEvents), oldest: 1, next: 1} }

// put adds the event of number next, and drops what is too much.
func (r *ring) put(f frame) {
	for r.next-r.oldest >= ringEvents || r.next > r.oldest && r.bytes+len(f.text) > ringBytes {
		old := r.at(r.oldest)
		r.bytes -= len(old.text)
		*old = frame{}
		r.oldest++
	}
	*r.at(r.next) = f
	r.bytes += len(f.text)
	r.next++
}

func (r *ring) at(n uint64) *frame { return &r.frames[n%ringEvents] }
