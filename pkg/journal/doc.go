// Package journal turns what systemd's journal holds about the watched units
// into events: live, back-filled, from files and from plain text.
//
// It owns the Journal Export Format (Decoder, Encoder), the cleaning of
// messages (Cleaner), the mapping of entries to events (Mapper), the reader
// child process with its supervision (RunReader, Source), and the one-shot
// sources (ReadFile, ReadDir).
//
// It must not know an engine or its wording, decide what a line means, or use
// libsystemd in the process that calls Source: libsystemd dies by SIGBUS when
// a mapped journal file is cut short, so it stays in the child.
package journal
