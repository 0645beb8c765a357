package web

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/startupd/startupd/pkg/web/api"
)

// Fail answers with what is wrong and what to do, for others that guard the
// server's paths. It sets the schema.
func Fail(w http.ResponseWriter, code int, p api.Problem) { fail(w, code, p) }

// fail answers with what is wrong and what to do.
func fail(w http.ResponseWriter, code int, p api.Problem) {
	p.Schema = api.ProblemSchema
	write(w, code, p)
}

// write answers with a document.
func write(w http.ResponseWriter, code int, body any) {
	b, err := json.Marshal(body)
	send(w, code, b, err)
}

// send answers with an encoded document, or with why there is none.
func send(w http.ResponseWriter, code int, b []byte, err error) {
	if err != nil {
		http.Error(w, "The answer can't be encoded: "+err.Error(), http.StatusInternalServerError)
		return
	}
	b = append(b, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(code)
	// A client that went away is no error of ours.
	_, _ = w.Write(b)
}
