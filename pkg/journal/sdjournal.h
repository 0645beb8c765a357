//go:build sdjournal

#ifndef STARTUPD_SDJOURNAL_H
#define STARTUPD_SDJOURNAL_H

#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-journal.h>

// When a wanted field asks for all fields of its entry.
enum jr_full {
	JR_NEVER,   // it does not
	JR_PRESENT, // when it is there
	JR_EQUALS,  // when its value is a word of jr_field.value
	JR_ENDS,    // when its value ends with jr_field.value
};

typedef struct {
	const char *name;
	size_t len;
	int always;         // written for every entry; else only where all are
	int full;           // enum jr_full
	const char *value;
} jr_field;

// Why jr_read returned; below zero it is a negative errno.
enum jr_state {
	JR_MORE,  // the buffer or the batch is full
	JR_TAIL,  // there are no more entries
	JR_UNTIL, // the next entry lies behind the last wanted one
	JR_LATER, // the next entry is still in the writing
	JR_GROW,  // an entry does not fit into the buffer
};

typedef struct {
	size_t used;
	uint64_t entries;
	int state;
} jr_result;

// A jr is an open journal. The fields above j are set before jr_open.
typedef struct {
	const jr_field *fields; // sorted by length
	size_t nfields;
	size_t limit;           // bytes of a value that are kept
	int reverse;
	int follow;             // entries that are still in the writing can wait
	int cursors;            // every entry gets its cursor
	int has_until;
	uint8_t until_boot[16];
	uint64_t until_mono;

	sd_journal *j;
	int pending; // the present entry was not written yet
	int first;   // the next entry is the first one
	char *last;  // cursor of the last entry that got one; the last one of a batch does
	char *taken; // cursor that was put and may still be taken back
	int last_is_here; // last is that of the last entry written
	uint64_t bad; // entries that could not be read, or only in part
	char *extra; // the fields that only some entries need
	size_t extra_cap;
	size_t first_of_len[32];
} jr;

// jr_load finds libsystemd. It returns NULL, or what is wrong.
const char *jr_load(void);

int jr_open(jr *r, const char *dir);
void jr_close(jr *r);
int jr_match(jr *r, const char *data, size_t len);
int jr_or(jr *r);
int jr_seek(jr *r, const char *cursor);

// jr_wait returns JR_FILES when files came or went.
enum { JR_FILES = 2 }; // SD_JOURNAL_INVALIDATE
int jr_wait(jr *r, uint64_t usec);

// jr_again makes the next jr_read look anew for what is behind the last entry.
// journald counts an entry before it links it under its fields; libsystemd, if
// it looks in between, finds nothing and does not look again until the count
// changes (next_beyond_location in sd-journal.c).
int jr_again(jr *r);

// jr_read writes entries in the Journal Export Format. The last entry of a
// batch ends with its cursor.
void jr_read(jr *r, char *buf, size_t cap, uint64_t max, jr_result *out);

#endif
