package deploy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// uncommented is the delivered configuration with its examples of receivers in
// place of the webhooks, as its comments say.
func uncommented(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(notifierConfig)
	if err != nil {
		t.Fatal(err)
	}
	routes, receivers, ok := strings.Cut(string(text), "\nreceivers:\n")
	if !ok {
		t.Fatal("no receivers")
	}
	receivers = regexp.MustCompile(`(?m)^    webhook_configs:\n(?:      .*\n)+`).ReplaceAllString(receivers, "")
	receivers = regexp.MustCompile(`(?m)^    # `).ReplaceAllString(receivers, "    ")
	return []byte(routes + "\nreceivers:\n" + receivers)
}

// TestExamplesAreValid has amtool check the examples as they stand.
func TestExamplesAreValid(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(path, uncommented(t), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := amtool(t, "check-config", path); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestExamplesDeliver runs the examples: a pager, a chat and a mail server, of
// which only the addresses and the credentials are the test's.
func TestExamplesDeliver(t *testing.T) {
	t.Parallel()
	posts := make(chan string, 20)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		posts <- r.URL.Path + " " + string(body)
		if r.URL.Path == "/pager" {
			w.WriteHeader(http.StatusAccepted)
		}
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(web.Close)
	mails := make(chan string, 20)
	doc := parseSettings(t, uncommented(t))
	hasten(t, doc, 60)
	point(t, doc, web.URL, mailServer(t, mails))
	n := &notifier{}
	n.run(t, doc)
	for severity, host := range map[string]string{"critical": "pager.example", "warning": "chat.example", "info": "mail.example"} {
		a := unitAlert("LLMStartupFailed", host, "vllm-kimi-k25.service").label("severity", severity)
		a.Annotations = say("LLMStartupFailed", "").because("package_mismatch", "RuntimeError", "EngineCore", mismatch+" <!here> & <b>").Annotations
		n.post(t, a)
	}
	seen := map[string]bool{}
	for len(seen) < 3 {
		select {
		case post := <-posts:
			path, body, _ := strings.Cut(post, " ")
			checkPost(t, path, body)
			seen[path] = true
		case m := <-mails:
			checkMail(t, m)
			seen["mail"] = true
		case <-time.After(20 * time.Second):
			t.Fatalf("only %v were told", seen)
		}
	}
}

// point leads the receivers of a configuration to the test's servers.
func point(t *testing.T, doc map[string]any, web, smarthost string) {
	t.Helper()
	secret := func(text string) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, r := range mappings(doc["receivers"]) {
		for _, c := range mappings(r["pagerduty_configs"]) {
			c["url"], c["routing_key_file"] = web+"/pager", secret("0123456789abcdef0123456789abcdef")
		}
		for _, c := range mappings(r["slack_configs"]) {
			c["api_url_file"] = secret(web + "/chat")
		}
		for _, c := range mappings(r["email_configs"]) {
			c["smarthost"], c["require_tls"] = smarthost, false
			delete(c, "auth_username")
			delete(c, "auth_password_file")
		}
	}
}

// checkPost reads what the pager or the chat gets.
func checkPost(t *testing.T, path, body string) {
	t.Helper()
	const title = "[CRITICAL] LLMStartupFailed: vllm-kimi-k25.service on pager.example: package_mismatch"
	var got struct {
		Payload struct {
			Summary, Severity, Class, Component, Group string
			Details                                    struct{ Text string } `json:"custom_details"`
		}
		Attachments []struct {
			Title, Text, Fallback, Color string
			Link                         string `json:"title_link"`
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Errorf("%s: %v: %s", path, err, body)
		return
	}
	if path == "/pager" {
		p := got.Payload
		if p.Summary != title || p.Severity != "critical" || p.Class != "package_mismatch" || p.Component != "vllm-kimi-k25.service" ||
			p.Group != "pager.example" || !strings.Contains(p.Details.Text, mismatch) {
			t.Errorf("the pager got %s", body)
		}
		return
	}
	if len(got.Attachments) != 1 {
		t.Errorf("the chat got %s", body)
		return
	}
	a := got.Attachments[0]
	if want := strings.NewReplacer("CRITICAL", "WARNING", "pager.", "chat.").Replace(title); a.Title != want || a.Fallback != want || a.Color != "warning" ||
		a.Link != docsURL+"runbooks/LLMStartupFailed.md" || !strings.Contains(a.Text, mismatch+" &lt;!here&gt; &amp; &lt;b&gt;`") {
		t.Errorf("the chat got %s", body)
	}
}

// checkMail reads a mail's subject and both its bodies.
func checkMail(t *testing.T, text string) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Errorf("%v in %s", err, text)
		return
	}
	if got := m.Header.Get("Subject"); got != "[INFO] LLMStartupFailed: vllm-kimi-k25.service on mail.example: package_mismatch" {
		t.Errorf("subject %q", got)
	}
	_, boundary, _ := strings.Cut(m.Header.Get("Content-Type"), "boundary=")
	parts := multipart.NewReader(m.Body, strings.Trim(boundary, `"`))
	found := map[string]string{}
	for {
		part, err := parts.NextRawPart()
		if err != nil {
			break
		}
		body, err := io.ReadAll(quotedprintable.NewReader(part))
		if err != nil {
			t.Error(err)
		}
		kind, _, _ := strings.Cut(part.Header.Get("Content-Type"), ";")
		found[kind] = string(body)
	}
	if !strings.Contains(found["text/plain"], mismatch+" <!here> & <b>") || !strings.Contains(found["text/html"], "<code>"+mismatch+" &lt;!here&gt; &amp; &lt;b&gt;</code>") {
		t.Errorf("the mail's bodies are %q", found)
	}
}

// mailServer takes mails without asking for a password, and returns its address.
func mailServer(t *testing.T, mails chan<- string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// A mail that does not come is missed by whoever waits for it.
			_ = takeMail(conn, mails)
		}
	}()
	return l.Addr().String()
}

// takeMail is the least of SMTP.
func takeMail(conn net.Conn, mails chan<- string) error {
	defer conn.Close()
	c := textproto.NewConn(struct {
		io.Reader
		io.Writer
		io.Closer
	}{bufio.NewReader(conn), conn, conn})
	if err := c.PrintfLine("220 mail.example"); err != nil {
		return err
	}
	for {
		line, err := c.ReadLine()
		if err != nil {
			return err
		}
		answer := "250 ok"
		switch verb, _, _ := strings.Cut(strings.ToUpper(line), " "); verb {
		case "DATA":
			if err := c.PrintfLine("354 go on"); err != nil {
				return err
			}
			body, err := c.ReadDotBytes()
			if err != nil {
				return err
			}
			mails <- string(bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n")))
		case "QUIT":
			return c.PrintfLine("221 bye")
		}
		if err := c.PrintfLine("%s", answer); err != nil {
			return err
		}
	}
}
