//go:build sdjournal

// The hot loop of the reader child. One pass over an entry's fields in C costs
// a third of asking for five of them by name through cgo, and needs no guess
// about which fields a line has.

#include "sdjournal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API(ret, name, ...) static ret (*p_##name)(__VA_ARGS__)

API(int, open, sd_journal **, int);
API(int, open_directory, sd_journal **, const char *, int);
API(void, close, sd_journal *);
API(int, next, sd_journal *);
API(int, previous, sd_journal *);
API(int, get_realtime_usec, sd_journal *, uint64_t *);
API(int, get_monotonic_usec, sd_journal *, uint64_t *, sd_id128_t *);
API(int, set_data_threshold, sd_journal *, size_t);
API(int, enumerate_data, sd_journal *, const void **, size_t *);
API(void, restart_data, sd_journal *);
API(int, add_match, sd_journal *, const void *, size_t);
API(int, add_disjunction, sd_journal *);
API(int, seek_head, sd_journal *);
API(int, seek_tail, sd_journal *);
API(int, seek_cursor, sd_journal *, const char *);
API(int, get_cursor, sd_journal *, char **);
API(int, test_cursor, sd_journal *, const char *);
API(int, wait, sd_journal *, uint64_t);

const char *jr_load(void)
{
	// Loaded at run time, so that the program starts on a host without it.
	void *lib = dlopen("libsystemd.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();

#define LOAD(name)                                                             \
	if (!(*(void **)&p_##name = dlsym(lib, "sd_journal_" #name)))          \
		return "libsystemd.so.0 has no sd_journal_" #name

	LOAD(open);
	LOAD(open_directory);
	LOAD(close);
	LOAD(next);
	LOAD(previous);
	LOAD(get_realtime_usec);
	LOAD(get_monotonic_usec);
	LOAD(set_data_threshold);
	LOAD(restart_data);
	LOAD(add_match);
	LOAD(add_disjunction);
	LOAD(seek_head);
	LOAD(seek_tail);
	LOAD(seek_cursor);
	LOAD(get_cursor);
	LOAD(test_cursor);
	LOAD(wait);
	// From 246 on this one skips a field that can't be read (a compression
	// that the library lacks) where the older one gives up the entry.
	*(void **)&p_enumerate_data = dlsym(lib, "sd_journal_enumerate_available_data");
	if (!p_enumerate_data)
		LOAD(enumerate_data);
	return NULL;
}

int jr_open(jr *r, const char *dir)
{
	int rc = dir ? p_open_directory(&r->j, dir, 0) : p_open(&r->j, SD_JOURNAL_LOCAL_ONLY);
	if (rc < 0)
		return rc;
	// One more than is kept, so that the reader of our output sees the cut.
	p_set_data_threshold(r->j, r->limit + 64);
	r->extra_cap = 256 << 10;
	r->extra = malloc(r->extra_cap);
	if (!r->extra)
		return -ENOMEM;
	size_t f = 0;
	for (size_t len = 0; len < 32; len++) {
		while (f < r->nfields && r->fields[f].len < len)
			f++;
		r->first_of_len[len] = f;
	}
	r->first = 1;
	return 0;
}

void jr_close(jr *r)
{
	if (r->j)
		p_close(r->j);
	free(r->extra);
	free(r->last);
	free(r->taken);
	r->j = NULL;
	r->extra = r->last = r->taken = NULL;
}

int jr_match(jr *r, const char *data, size_t len) { return p_add_match(r->j, data, len); }

int jr_or(jr *r) { return p_add_disjunction(r->j); }

int jr_seek(jr *r, const char *cursor)
{
	if (cursor)
		return p_seek_cursor(r->j, cursor);
	return r->reverse ? p_seek_tail(r->j) : p_seek_head(r->j);
}

int jr_wait(jr *r, uint64_t usec) { return p_wait(r->j, usec); }

int jr_again(jr *r)
{
	int rc;

	if (!r->last || !r->last_is_here || r->reverse)
		return 0;
	r->pending = 0;
	if ((rc = p_seek_cursor(r->j, r->last)) < 0 || (rc = p_next(r->j)) < 0)
		return rc;
	// Where the last entry is gone, others behind it may be: the parent looks.
	return rc > 0 && p_test_cursor(r->j, r->last) > 0 ? rc : -ESTALE;
}

typedef struct {
	char *buf;
	size_t used, cap;
	int full; // something did not fit
} out;

static void put(out *o, const void *p, size_t n)
{
	if (o->cap - o->used < n) {
		o->full = 1;
		return;
	}
	memcpy(o->buf + o->used, p, n);
	o->used += n;
}

#define PUT(o, literal) put(o, literal, sizeof(literal) - 1)

static void put_number(out *o, uint64_t n)
{
	char digits[20];
	size_t at = sizeof digits;
	do
		digits[--at] = '0' + n % 10;
	while (n /= 10);
	put(o, digits + at, sizeof digits - at);
}

static int is_text(const char *p, size_t n)
{
	unsigned control = 0;
	for (size_t i = 0; i < n; i++)
		control |= (unsigned char)p[i] < ' ' && p[i] != '\t';
	return !control;
}

static void put_field(out *o, const jr_field *f, const char *value, size_t n)
{
	put(o, f->name, f->len);
	if (is_text(value, n)) {
		PUT(o, "=");
	} else {
		unsigned char size[9] = {'\n'};
		for (int i = 0; i < 8; i++)
			size[i + 1] = (uint64_t)n >> (8 * i);
		put(o, size, sizeof size);
	}
	put(o, value, n);
	PUT(o, "\n");
}

static const jr_field *find(const jr *r, const char *name, size_t len)
{
	if (len >= 32)
		return NULL;
	for (size_t i = r->first_of_len[len]; i < r->nfields && r->fields[i].len == len; i++)
		if (!memcmp(r->fields[i].name, name, len))
			return &r->fields[i];
	return NULL;
}

// is_word says that a value is one of several words.
static int is_word(const char *words, const char *value, size_t n)
{
	while (*words) {
		size_t len = strcspn(words, " ");
		if (len == n && !memcmp(words, value, n))
			return 1;
		words += len;
		words += *words == ' ';
	}
	return 0;
}

static int wants_full(const jr_field *f, const char *value, size_t n)
{
	size_t want = f->value ? strlen(f->value) : 0;
	switch (f->full) {
	case JR_PRESENT:
		return 1;
	case JR_EQUALS:
		return is_word(f->value, value, n);
	case JR_ENDS:
		return n >= want && !memcmp(value + n - want, f->value, want);
	}
	return 0;
}

// put_fields writes the entry's fields and says whether it has a message.
static int put_fields(jr *r, out *o)
{
	out extra = {.buf = r->extra, .cap = r->extra_cap};
	const void *data;
	size_t n;
	int rc, full = 0, message = 0;

	p_restart_data(r->j);
	while ((rc = p_enumerate_data(r->j, &data, &n)) > 0) {
		const char *name = data;
		const char *eq = memchr(name, '=', n < 32 ? n : 32);
		const jr_field *f = eq ? find(r, name, eq - name) : NULL;
		if (!f)
			continue;
		const char *value = eq + 1;
		n -= value - name;
		full |= wants_full(f, value, n);
		message |= f->len == 7 && !memcmp(f->name, "MESSAGE", 7);
		if (f->always)
			put_field(o, f, value, n > r->limit ? r->limit + 1 : n);
		else
			put_field(&extra, f, value, n > 4096 ? 4096 : n);
	}
	if (rc < 0)
		r->bad++;
	if (full)
		put(o, extra.buf, extra.used);
	return message;
}

static void put_clocks(out *o, uint64_t real, uint64_t mono, sd_id128_t boot)
{
	static const char hex[16] = "0123456789abcdef";
	char id[32];
	for (int i = 0; i < 16; i++) {
		id[2 * i] = hex[boot.bytes[i] >> 4];
		id[2 * i + 1] = hex[boot.bytes[i] & 15];
	}
	PUT(o, "__REALTIME_TIMESTAMP=");
	put_number(o, real);
	PUT(o, "\n__MONOTONIC_TIMESTAMP=");
	put_number(o, mono);
	PUT(o, "\n_BOOT_ID=");
	put(o, id, sizeof id);
	PUT(o, "\n");
}

static void put_cursor(jr *r, out *o)
{
	char *cursor;
	if (p_get_cursor(r->j, &cursor) < 0)
		return;
	PUT(o, "__CURSOR=");
	put(o, cursor, strlen(cursor));
	PUT(o, "\n");
	free(r->taken);
	r->taken = cursor;
}

// keep_cursor makes the cursor just put that of the last entry written.
// libsystemd forgets where it is when the file is renamed.
static void keep_cursor(jr *r)
{
	if (!r->taken)
		return;
	free(r->last);
	r->last = r->taken;
	r->taken = NULL;
	r->last_is_here = 1;
}

// compare_until says where the entry lies: before (-1) or behind (1) the last
// wanted one. 0 is for what the clocks can't tell: the same time, or another
// boot, at which the wall clock may have been set back. The cursor tells then.
static int compare_until(const jr *r, uint64_t mono, sd_id128_t boot)
{
	if (memcmp(boot.bytes, r->until_boot, 16))
		return 0;
	return mono < r->until_mono ? -1 : mono > r->until_mono;
}

// An entry is young while the one before it may have been written in the same
// moment; from twice that age on each gets a cursor to find its way back to.
enum { young_usec = 1000000, settle_usec = 10000 };

static uint64_t now_usec(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// recheck makes the present entry the one right behind the last one written.
// libsystemd looks for the next entry under one match after another, and in one
// file after another: of two entries that are written meanwhile it may find the
// second, and the first would never be seen.
static int recheck(jr *r)
{
	int rc = p_previous(r->j);
	if (rc > 0 && p_test_cursor(r->j, r->last) > 0)
		return p_next(r->j);
	if (rc < 0 || (rc = jr_again(r)) < 0)
		return rc;
	return p_next(r->j);
}

static int clocks(jr *r, uint64_t *real, uint64_t *mono, sd_id128_t *boot)
{
	return p_get_realtime_usec(r->j, real) >= 0 && p_get_monotonic_usec(r->j, mono, boot) >= 0;
}

// step goes to the next entry and reads its clocks. An entry that can't be
// read is counted and passed over. It returns a jr_state; JR_MORE is success.
static int step(jr *r, uint64_t now, uint64_t *real, uint64_t *mono, sd_id128_t *boot)
{
	for (;; r->pending = 0) {
		int rc = 1, fresh = !r->pending;
		if (fresh)
			rc = r->reverse ? p_previous(r->j) : p_next(r->j);
		if (rc > 0 && clocks(r, real, mono, boot)) {
			if (!fresh || r->reverse || !r->last_is_here || *real + young_usec < now)
				break;
			if ((rc = recheck(r)) > 0 && clocks(r, real, mono, boot))
				break;
		}
		if (rc < 0)
			return rc;
		if (rc == 0)
			return JR_TAIL;
		r->bad++;
		r->last_is_here = 0; // between it and the next one lies this one
	}
	r->pending = 0;
	return JR_MORE;
}

// unfinished says that an entry may still be in the writing: it can be found by
// one field while the next is not linked to it, and libsystemd then leaves that
// one out (check_object calls its data bad) as if it were not there.
static int unfinished(const jr *r, uint64_t real, int message)
{
	if (!r->follow || r->first)
		return 0;
	uint64_t now = now_usec();
	return real + (message ? settle_usec : young_usec) > now && real < now + young_usec;
}

// later goes back to the last entry written, so that the next look finds what
// is behind it then. without says that it has no cursor.
static int later(jr *r, int without)
{
	int rc = 1;
	if (without)
		rc = p_previous(r->j);
	else if (r->last_is_here)
		rc = jr_again(r);
	else
		r->pending = 1;
	return rc < 0 ? rc : rc == 0 && without ? -ESTALE : JR_LATER;
}

// reserve is what a batch leaves free, so that most entries fit and the
// batch's end is known before the next entry is looked at.
enum { reserve = 64 << 10 };

void jr_read(jr *r, char *buf, size_t cap, uint64_t max, jr_result *res)
{
	out o = {.buf = buf, .cap = cap - 512}; // room for the end of the batch
	uint64_t real, mono, now = now_usec();
	sd_id128_t boot;
	int here = 0; // the present entry is the last one written, and has no cursor

	res->entries = 0;
	for (;;) {
		res->state = JR_MORE;
		if (res->entries == max || (res->entries && o.cap - o.used < reserve))
			break;
		res->state = step(r, now, &real, &mono, &boot);
		if (res->state != JR_MORE)
			break;
		int until = r->has_until ? compare_until(r, mono, boot) : -1;
		if (until > 0) {
			res->state = JR_UNTIL;
			here = 0;
			break;
		}
		size_t mark = o.used;
		if (res->entries)
			PUT(&o, "\n");
		put_clocks(&o, real, mono, boot);
		if (unfinished(r, real, put_fields(r, &o))) {
			o.used = mark;
			res->state = later(r, here);
			break;
		}
		int cursor = r->cursors || r->first || until == 0 || real + 2 * young_usec >= now;
		if (cursor)
			put_cursor(r, &o);
		if (o.full) {
			// The entry before has no cursor; the next batch ends with one.
			o.used = mark;
			r->pending = 1;
			here = 0;
			free(r->taken);
			r->taken = NULL;
			res->state = res->entries ? JR_MORE : JR_GROW;
			break;
		}
		r->first = r->last_is_here = 0;
		keep_cursor(r);
		here = !cursor;
		res->entries++;
	}
	o.cap = cap;
	if (here) {
		put_cursor(r, &o);
		keep_cursor(r);
	}
	if (res->entries)
		PUT(&o, "\n");
	res->used = o.used;
}
