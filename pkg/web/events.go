package web

import (
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
)

// retryAfter is what a client is told, in seconds, that finds no free stream.
const retryAfter = "5"

// events streams what happens to the units.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	units, ok := s.units(w, r)
	if !ok {
		return
	}
	out := &pieces{w: w, rc: http.NewResponseController(w), within: s.opt.Hub.opts.WriteWithin}
	st, err := s.opt.Hub.open(units, out)
	if err != nil {
		w.Header().Set("Retry-After", retryAfter)
		fail(w, http.StatusServiceUnavailable, api.Problem{
			Error: err.Error(), Next: "close one, or try again in " + retryAfter + " s; /api/v1/status tells the same once",
		})
		return
	}
	defer st.close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	// A proxy must not collect events.
	h.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	// The server's read deadline is one for requests: it would end the stream.
	if err := out.rc.SetReadDeadline(time.Time{}); err != nil {
		fail(w, http.StatusInternalServerError, api.Problem{Error: "this connection can't be streamed on: " + err.Error(), Next: "ask /api/v1/status instead"})
		return
	}
	s.ended(r, st.run(r.Context(), lastEventID(r)))
}

// lastEventID is where the client wants to go on. A browser that reconnects
// sends the header, and its address as it was.
func lastEventID(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("last_event_id")
}

// ended tells of a stream that was given up.
func (s *Server) ended(r *http.Request, err error) {
	if told := s.opt.Hub.opts.Dropped; told != nil && (errors.Is(err, errSlow) || errors.Is(err, os.ErrDeadlineExceeded)) {
		told(r.RemoteAddr, err.Error())
	}
}
