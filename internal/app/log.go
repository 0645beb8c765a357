package app

import (
	"context"
	"io"
	stdlog "log"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"
)

// NewLogger returns a logger that writes lines to w. level is debug, info, warn
// or error; format is console, json, or journal for a w that journald reads: it
// takes level and time on itself.
func NewLogger(w io.Writer, level, format string) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, badConfig("--log.level %q: use debug, info, warn or error", level)
	}
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.ISO8601TimeEncoder
	cfg.EncodeDuration = zapcore.StringDurationEncoder
	cfg.TimeKey = "time"
	var enc zapcore.Encoder
	switch format {
	case "json":
		enc = zapcore.NewJSONEncoder(cfg)
	case "journal":
		cfg.TimeKey, cfg.LevelKey = zapcore.OmitKey, zapcore.OmitKey
		cfg.ConsoleSeparator = " "
		enc = journalEncoder{zapcore.NewConsoleEncoder(cfg), buffer.NewPool()}
	case "console":
		cfg.EncodeLevel = zapcore.CapitalLevelEncoder
		cfg.ConsoleSeparator = " "
		enc = zapcore.NewConsoleEncoder(cfg)
	default:
		return nil, badConfig("--log.format %q: use auto, console, json or journal", format)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(w)), l)), nil
}

// journalEncoder puts the level before a line as sd-daemon(3) has it, so that
// `journalctl --priority` can select.
type journalEncoder struct {
	zapcore.Encoder
	buffers buffer.Pool
}

// Clone implements zapcore.Encoder.
func (e journalEncoder) Clone() zapcore.Encoder { return journalEncoder{e.Encoder.Clone(), e.buffers} }

// EncodeEntry implements zapcore.Encoder.
func (e journalEncoder) EncodeEntry(ent zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	line, err := e.Encoder.EncodeEntry(ent, fields)
	if err != nil {
		return nil, err
	}
	defer line.Free()
	out := e.buffers.Get()
	out.AppendString(priority(ent.Level))
	_, err = out.Write(line.Bytes())
	return out, err
}

func priority(l zapcore.Level) string {
	switch {
	case l >= zapcore.ErrorLevel:
		return "<3>"
	case l == zapcore.WarnLevel:
		return "<4>"
	case l == zapcore.InfoLevel:
		return "<6>"
	}
	return "<7>"
}

// The lines of one text that may be logged in a while; more are counted only.
const (
	floodWindow = 10 * time.Minute
	floodLines  = 50
)

// flood keeps lines that repeat out of the log. Those that it left out are told
// of in one line.
type flood struct {
	leftOut  atomic.Int64
	reported time.Time
}

// limit returns a logger for texts that may repeat without end.
func (f *flood) limit(log *zap.Logger) *zap.Logger {
	hook := zapcore.SamplerHook(func(_ zapcore.Entry, what zapcore.SamplingDecision) {
		if what&zapcore.LogDropped != 0 {
			f.leftOut.Add(1)
		}
	})
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, floodWindow, floodLines, 0, hook)
	}))
}

// report tells what was left out, at most once in a window. One goroutine calls
// it.
func (f *flood) report(log *zap.Logger) {
	if f.leftOut.Load() == 0 || !f.reported.IsZero() && time.Since(f.reported) < floodWindow {
		return
	}
	f.reported = time.Now()
	log.Warn("Lines that repeat were left out of this log; /metrics and the page show what goes on", zap.Int64("lines", f.leftOut.Swap(0)))
}

// How many failed connections are logged in full at first, and how often after.
const (
	httpErrorLines = 3
	httpErrorEvery = 10 * time.Minute
)

// httpErrors returns a logger for an HTTP server, whose clients can fail as often
// as they like: a scrape without TLS fails every few seconds.
func httpErrors(log *zap.Logger) *stdlog.Logger {
	return stdlog.New(&httpErrorWriter{log: log, budget: rate.NewLimiter(rate.Every(httpErrorEvery), httpErrorLines)}, "", 0)
}

type httpErrorWriter struct {
	log *zap.Logger

	mu      sync.Mutex // guards what follows
	budget  *rate.Limiter
	leftOut int
}

// Write implements io.Writer: the server writes one message a call.
func (w *httpErrorWriter) Write(b []byte) (int, error) {
	text := string(b)
	if first, stack, ok := strings.Cut(text, "\n"); ok && strings.Contains(first, "panic serving") {
		w.log.Error("A request has ended in a panic: report it as a bug", zap.String("error", plain(first)), zap.String("stack", clip(stack, maxStack)))
		return len(b), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.budget.AllowN(time.Now(), 1) {
		w.leftOut++
		return len(b), nil
	}
	fields := []zap.Field{zap.String("error", plain(text))}
	if w.leftOut > 0 {
		fields = append(fields, zap.Int("left_out", w.leftOut))
	}
	w.leftOut = 0
	w.log.Warn("An HTTP connection has failed", fields...)
	return len(b), nil
}

// maxStack bounds a stack in the log, in bytes.
const maxStack = 8 << 10

func clip(s string, n int) string { return strings.ToValidUTF8(s[:min(n, len(s))], "") }

// quietSlog returns an slog logger on log for a library whose news is of use to
// nobody else: information becomes debug.
func quietSlog(log *zap.Logger) *slog.Logger { return slog.New(slogHandler{log}) }

type slogHandler struct{ log *zap.Logger }

func (h slogHandler) level(l slog.Level) zapcore.Level {
	switch {
	case l >= slog.LevelError:
		return zapcore.ErrorLevel
	case l >= slog.LevelWarn:
		return zapcore.WarnLevel
	}
	return zapcore.DebugLevel
}

func (h slogHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.log.Core().Enabled(h.level(l))
}

func (h slogHandler) Handle(_ context.Context, r slog.Record) error {
	fields := make([]zap.Field, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		fields = append(fields, zap.Any(a.Key, a.Value.Any()))
		return true
	})
	if e := h.log.Check(h.level(r.Level), r.Message); e != nil {
		e.Write(fields...)
	}
	return nil
}

func (h slogHandler) WithAttrs(as []slog.Attr) slog.Handler {
	fields := make([]zap.Field, 0, len(as))
	for _, a := range as {
		fields = append(fields, zap.Any(a.Key, a.Value.Any()))
	}
	return slogHandler{h.log.With(fields...)}
}

func (h slogHandler) WithGroup(name string) slog.Handler {
	return slogHandler{h.log.With(zap.Namespace(name))}
}
