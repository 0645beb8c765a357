package app

import (
	"context"
	"io"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger returns a logger that writes lines to w. level is debug, info, warn
// or error; format is console or json.
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
	case "console":
		cfg.EncodeLevel = zapcore.CapitalLevelEncoder
		cfg.ConsoleSeparator = " "
		enc = zapcore.NewConsoleEncoder(cfg)
	default:
		return nil, badConfig("--log.format %q: use console or json", format)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(w)), l)), nil
}

// slogTo returns an slog logger on log, for libraries that want one.
func slogTo(log *zap.Logger) *slog.Logger { return slog.New(slogHandler{log}) }

type slogHandler struct{ log *zap.Logger }

func (h slogHandler) level(l slog.Level) zapcore.Level {
	switch {
	case l >= slog.LevelError:
		return zapcore.ErrorLevel
	case l >= slog.LevelWarn:
		return zapcore.WarnLevel
	case l >= slog.LevelInfo:
		return zapcore.InfoLevel
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
