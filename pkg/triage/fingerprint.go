package triage

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// fingerprintVersion names the rules that fingerprints are made by.
const fingerprintVersion = "v1"

// fingerprintMessageLimit is how much of a masked message counts, in bytes: what
// is behind it are dumps that vary.
const fingerprintMessageLimit = 4 << 10

// Frame is one call of a traceback. It has no line number, which another version of
// the same file would change.
type Frame struct {
	// File is as printed; "" when not told.
	File string
	// Func is "" when not told.
	Func string
}

// Fingerprint identifies an error across startups, hosts and versions: "v1:" and
// 16 hexadecimal digits of a SHA-256 of
//
//   - the exception's type, without its module,
//   - the frames, outermost first: the file from its package on, and the function;
//     a frame that repeats counts once,
//   - the message as MaskMessage leaves it, without secrets.
//
// Each may be empty. Any change of these rules, or of a mask, gives the same error
// another fingerprint, and so needs a new version: history compares fingerprints of
// one version only.
func Fingerprint(exception string, frames []Frame, message string) string {
	var b strings.Builder
	field := func(text string) { // with its length, so that no two lists of fields read the same
		b.WriteString(strconv.Itoa(len(text)))
		b.WriteByte(':')
		b.WriteString(text)
	}
	field(exceptionName(exception))
	var last Frame
	for i, frame := range frames {
		frame = Frame{File: frameFile(frame.File), Func: MaskMessage(frame.Func)}
		if i > 0 && frame == last {
			continue
		}
		field(frame.File)
		field(frame.Func)
		last = frame
	}
	message = MaskMessage(MaskSecrets(message))
	if len(message) > fingerprintMessageLimit {
		message = message[:fingerprintMessageLimit]
	}
	field("message")
	field(message)
	sum := sha256.Sum256([]byte(b.String()))
	return fingerprintVersion + ":" + hex.EncodeToString(sum[:8])
}

// exceptionName is the last part of a dotted type: the module moves between
// versions.
func exceptionName(exception string) string {
	exception = strings.TrimRight(strings.TrimSpace(exception), ":")
	return exception[strings.LastIndexAny(exception, ".:")+1:]
}

// frameFile makes a file relative, so that it is the same on each host: from its
// package on where an installation or a checkout can be told, else its name and its
// folder's.
func frameFile(file string) string {
	file = strings.ReplaceAll(file, "\\", "/")
	for _, marker := range [...]string{"site-packages/", "dist-packages/"} {
		if at := strings.LastIndex(file, marker); at >= 0 {
			return maskFile(file[at+len(marker):])
		}
	}
	parts := strings.Split(strings.TrimPrefix(file, "/"), "/")
	if root := checkoutRoot(parts); root > 0 {
		return maskFile(strings.Join(parts[root:], "/"))
	}
	name := parts[len(parts)-1]
	masked := maskFile(name)
	if len(parts) == 1 || masked != name { // a generated file is in a generated folder
		return masked
	}
	return maskFile(parts[len(parts)-2]) + "/" + masked
}

// checkoutRoot finds a package in a checkout that is named for it: the last x in
// src/x/x/..., x-fork/x/... or x/python/x/...; 0 when there is none.
func checkoutRoot(parts []string) int {
	for i := 0; i+2 < len(parts); i++ {
		for next := i + 1; next <= i+2 && next+1 < len(parts); next++ {
			name := parts[next]
			if name == "" || !strings.HasPrefix(parts[i], name) {
				continue
			}
			if rest := parts[i][len(name):]; rest == "" || strings.IndexByte("-_.", rest[0]) >= 0 {
				return next
			}
		}
	}
	return 0
}

// maskFile masks the generated names in a path: hashes, process ids.
func maskFile(file string) string {
	var b strings.Builder
	for i, part := range strings.Split(file, "/") {
		if i > 0 {
			b.WriteByte('/')
		}
		stem, ext, _ := strings.Cut(part, ".")
		var mix secretMix
		for i := range len(stem) {
			mix.add(stem[i])
		}
		if len(stem) >= 32 && mix.digit && strings.IndexByte(stem, '_') < 0 {
			stem = "<hex>"
		}
		b.WriteString(MaskMessage(stem))
		if ext != "" {
			b.WriteByte('.')
			b.WriteString(ext)
		}
	}
	return b.String()
}
