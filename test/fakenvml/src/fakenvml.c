/*
 * A stand-in for NVIDIA's libnvidia-ml.so.1. It has no GPU: every call reads
 * the file that the environment variable FAKE_NVML_STATE names and answers
 * from it, so that a test changes what "the driver" says by renaming a new
 * file into place. It holds no state between calls, apart from whether
 * nvmlInit succeeded.
 *
 * The file is text, one directive a line. Values are key=value, quoted with "
 * where they hold a blank. Blank lines and lines that begin with # are skipped.
 *
 *   gpu I uuid=U name="N" pci=DOMAIN:BUS:DEVICE used=BYTES total=BYTES util=PERCENT mig=0|1 error=CODE
 *       a GPU. Indexes count from 0 without a hole. Every key may be left out.
 *       used, total, util: "-" or nothing makes the call NOT_SUPPORTED.
 *       mig: without the key the GPU can't be partitioned (NOT_SUPPORTED).
 *       error: every call about this GPU, but the one for its handle, fails so.
 *   mig I M
 *       a MIG device M of GPU I. Indexes may have holes.
 *   proc I pid=P used=BYTES type=compute|graphics|mps mig=M
 *       a process on GPU I (type: compute where left out; used: "-" or nothing
 *       is "not available"). With mig=M it is listed on that MIG device, and
 *       not on the GPU.
 *   fail FUNCTION CODE [I]
 *       the call fails; with I, only for that GPU.
 *   hang FUNCTION [I]
 *       the call never returns; with I, only for that GPU.
 *
 * CODE is an NVML error without its prefix (GPU_IS_LOST, NOT_SUPPORTED,
 * DRIVER_NOT_LOADED, UNKNOWN, ...) or a number. FUNCTION is the exported name,
 * with its _v2 or _v3.
 *
 * A file that is missing makes nvmlInit answer DRIVER_NOT_LOADED; a line that
 * can't be read makes every call answer UNKNOWN and is named on stderr.
 *
 * Compiled with -DOLD_DRIVER the library lacks what drivers of 2016 lacked:
 * every _v2 and _v3 name but nvmlInit_v2, nvmlDeviceGetCount_v2 and
 * nvmlDeviceGetHandleByIndex_v2, and everything of MIG and MPS.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_GPUS = 64, MAX_MIGS = 16, MAX_PROCS = 4096, MAX_RULES = 256 };
enum { NAME = 96 };

typedef unsigned long long u64;
typedef int ret_t;

enum {
	OK = 0,
	UNINITIALIZED = 1,
	INVALID_ARGUMENT = 2,
	NOT_SUPPORTED = 3,
	NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7,
	DRIVER_NOT_LOADED = 9,
	ARGUMENT_VERSION_MISMATCH = 25,
	UNKNOWN = 999,
};

static const struct {
	const char *name, *text;
	int code;
} codes[] = {
	{"OK", "Success", 0},
	{"UNINITIALIZED", "Uninitialized", 1},
	{"INVALID_ARGUMENT", "Invalid Argument", 2},
	{"NOT_SUPPORTED", "Not Supported", 3},
	{"NO_PERMISSION", "Insufficient Permissions", 4},
	{"NOT_FOUND", "Not Found", 6},
	{"INSUFFICIENT_SIZE", "Insufficient Size", 7},
	{"DRIVER_NOT_LOADED", "Driver Not Loaded", 9},
	{"TIMEOUT", "Timeout", 10},
	{"LIBRARY_NOT_FOUND", "Shared Library Not Found", 12},
	{"FUNCTION_NOT_FOUND", "Function Not Found", 13},
	{"GPU_IS_LOST", "GPU is lost", 15},
	{"RESET_REQUIRED", "GPU requires reset", 16},
	{"OPERATING_SYSTEM", "Blocked by the operating system", 17},
	{"LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch", 18},
	{"IN_USE", "In use by another client", 19},
	{"MEMORY", "Insufficient Memory", 20},
	{"NO_DATA", "No data", 21},
	{"ARGUMENT_VERSION_MISMATCH", "Argument version mismatch", 25},
	{"NOT_READY", "Not ready", 27},
	{"UNKNOWN", "Unknown Error", 999},
};

enum { NCODES = sizeof codes / sizeof codes[0] };

enum kind { COMPUTE, GRAPHICS, MPS };

struct gpu {
	char uuid[NAME], name[NAME], pci[NAME];
	int has_used, has_total, has_util, has_mig;
	u64 used, total;
	unsigned util, mig;
	int error;
	int migs[MAX_MIGS]; /* 1 where a MIG device of that index is */
};

struct proc {
	int gpu, mig; /* mig is -1 on the GPU itself */
	enum kind kind;
	unsigned pid;
	u64 used;
};

struct rule {
	char function[NAME];
	int gpu; /* -1 for all */
	int hang, code;
};

struct state {
	int ngpus, nprocs, nrules;
	struct gpu gpus[MAX_GPUS];
	struct proc procs[MAX_PROCS];
	struct rule rules[MAX_RULES];
};

/* What a handle points at: mig is -1 for the GPU itself. */
struct nvmlDevice_st {
	int gpu, mig;
};
typedef struct nvmlDevice_st *device_t;

static struct nvmlDevice_st handles[MAX_GPUS][MAX_MIGS + 1];
static int initialised;

/* ---- reading the file ---- */

/* next cuts the next word off *s, minding double quotes inside it. */
static char *next(char **s)
{
	char *in = *s, *out, *word;
	int quoted = 0;

	while (*in == ' ' || *in == '\t')
		in++;
	if (!*in)
		return NULL;
	word = out = in;
	for (; *in && (quoted || (*in != ' ' && *in != '\t')); in++) {
		if (*in == '"')
			quoted = !quoted;
		else
			*out++ = *in;
	}
	*s = *in ? in + 1 : in;
	*out = 0;
	return quoted ? NULL : word;
}

static int number(const char *s, u64 *out)
{
	char *end;

	if (!s || *s < '0' || *s > '9')
		return 0;
	errno = 0;
	*out = strtoull(s, &end, 10);
	return !*end && !errno;
}

static int below(const char *s, int limit, int *out)
{
	u64 n;

	if (!number(s, &n) || n >= (u64)limit)
		return 0;
	*out = (int)n;
	return 1;
}

static int code_of(const char *s, int *out)
{
	int i;

	if (!s)
		return 0;
	for (i = 0; i < NCODES; i++)
		if (!strcmp(s, codes[i].name)) {
			*out = codes[i].code;
			return 1;
		}
	return below(s, 1000, out);
}

/* optional reads a number, or "-" for one that is not there. */
static int optional(const char *s, int *has, u64 *out)
{
	*has = strcmp(s, "-") != 0;
	return !*has || number(s, out);
}

static int text(const char *s, char *out)
{
	if (strlen(s) >= NAME)
		return 0;
	strcpy(out, s);
	return 1;
}

static int read_gpu(struct state *st, char *s)
{
	struct gpu *g;
	char *w, *v;
	int index;
	u64 n = 0;

	if (!below(next(&s), MAX_GPUS, &index) || index != st->ngpus)
		return 0;
	g = &st->gpus[st->ngpus++];
	while ((w = next(&s))) {
		if (!(v = strchr(w, '=')))
			return 0;
		*v++ = 0;
		if (!strcmp(w, "uuid") && text(v, g->uuid))
			continue;
		if (!strcmp(w, "name") && text(v, g->name))
			continue;
		if (!strcmp(w, "pci") && text(v, g->pci))
			continue;
		if (!strcmp(w, "used") && optional(v, &g->has_used, &g->used))
			continue;
		if (!strcmp(w, "total") && optional(v, &g->has_total, &g->total))
			continue;
		if (!strcmp(w, "util") && optional(v, &g->has_util, &n)) {
			g->util = (unsigned)n;
			continue;
		}
		if (!strcmp(w, "mig") && optional(v, &g->has_mig, &n)) {
			g->mig = n != 0;
			continue;
		}
		if (!strcmp(w, "error") && code_of(v, &g->error))
			continue;
		return 0;
	}
	return 1;
}

static int read_proc(struct state *st, char *s)
{
	struct proc p = {.mig = -1, .used = ~0ULL};
	char *w, *v;
	int has;
	u64 n;

	if (st->nprocs == MAX_PROCS || !below(next(&s), st->ngpus, &p.gpu))
		return 0;
	while ((w = next(&s))) {
		if (!(v = strchr(w, '=')))
			return 0;
		*v++ = 0;
		if (!strcmp(w, "pid") && number(v, &n)) {
			p.pid = (unsigned)n;
			continue;
		}
		if (!strcmp(w, "used") && optional(v, &has, &p.used))
			continue;
		if (!strcmp(w, "mig") && below(v, MAX_MIGS, &p.mig))
			continue;
		if (!strcmp(w, "type")) {
			if (!strcmp(v, "compute"))
				p.kind = COMPUTE;
			else if (!strcmp(v, "graphics"))
				p.kind = GRAPHICS;
			else if (!strcmp(v, "mps"))
				p.kind = MPS;
			else
				return 0;
			continue;
		}
		return 0;
	}
	st->procs[st->nprocs++] = p;
	return 1;
}

static int read_rule(struct state *st, char *s, int hang)
{
	struct rule r = {.gpu = -1, .hang = hang};
	char *w = next(&s);

	if (st->nrules == MAX_RULES || !w || !text(w, r.function))
		return 0;
	if (!hang && !code_of(next(&s), &r.code))
		return 0;
	if ((w = next(&s)) && !below(w, MAX_GPUS, &r.gpu))
		return 0;
	st->rules[st->nrules++] = r;
	return 1;
}

static int read_line(struct state *st, char *s)
{
	char *w;
	int gpu, mig;

	s[strcspn(s, "\n")] = 0;
	w = next(&s);
	if (!w)
		return !*s;
	if (*w == '#')
		return 1;
	if (!strcmp(w, "gpu"))
		return read_gpu(st, s);
	if (!strcmp(w, "proc"))
		return read_proc(st, s);
	if (!strcmp(w, "fail"))
		return read_rule(st, s, 0);
	if (!strcmp(w, "hang"))
		return read_rule(st, s, 1);
	if (!strcmp(w, "mig") && below(next(&s), st->ngpus, &gpu) && below(next(&s), MAX_MIGS, &mig)) {
		st->gpus[gpu].migs[mig] = 1;
		return 1;
	}
	return 0;
}

/* load reads the file into *out, which the caller frees also after an error. */
static ret_t load(struct state **out)
{
	const char *path = getenv("FAKE_NVML_STATE");
	char line[1024];
	FILE *f;
	int n = 0, code = OK;

	*out = calloc(1, sizeof **out);
	if (!*out || !path || !(f = fopen(path, "re")))
		return DRIVER_NOT_LOADED;
	while (code == OK && fgets(line, sizeof line, f)) {
		n++;
		if (!read_line(*out, line)) {
			fprintf(stderr, "fake NVML: %s:%d: can't read this line; see the comment in fakenvml.c\n", path, n);
			code = UNKNOWN;
		}
	}
	fclose(f);
	return code;
}

/* ---- answering ---- */

/* ruled applies the hang and fail lines. gpu is -1 for calls about none. */
static ret_t ruled(const struct state *st, const char *function, int gpu)
{
	int i;

	for (i = 0; i < st->nrules; i++) {
		const struct rule *r = &st->rules[i];

		if (strcmp(r->function, function) || (r->gpu >= 0 && r->gpu != gpu))
			continue;
		while (r->hang)
			pause();
		return r->code;
	}
	return OK;
}

/* begin loads the state and says whether the call may go on. */
static ret_t begin(struct state **st, const char *function, int gpu)
{
	ret_t code;

	*st = NULL;
	if (!initialised)
		return UNINITIALIZED;
	code = load(st);
	if (code == DRIVER_NOT_LOADED)
		return UNKNOWN;
	if (code == OK)
		code = ruled(*st, function, gpu);
	return code;
}

/* on_device is begin for a call about one device. */
static ret_t on_device(struct state **st, const char *function, device_t d)
{
	ret_t code = begin(st, function, d ? d->gpu : -1);

	if (code != OK)
		return code;
	if (!d || d->gpu >= (*st)->ngpus)
		return INVALID_ARGUMENT;
	return (*st)->gpus[d->gpu].error;
}

static ret_t init_as(const char *function)
{
	struct state *st;
	ret_t code = load(&st);

	if (code == OK)
		code = ruled(st, function, -1);
	free(st);
	initialised = code == OK;
	return code;
}

static ret_t count_as(const char *function, unsigned *n)
{
	struct state *st;
	ret_t code = begin(&st, function, -1);

	if (code == OK)
		*n = (unsigned)st->ngpus;
	free(st);
	return code;
}

static ret_t handle_as(const char *function, unsigned index, device_t *d)
{
	struct state *st;
	ret_t code = begin(&st, function, (int)index);

	if (code == OK && index >= (unsigned)st->ngpus)
		code = INVALID_ARGUMENT;
	if (code == OK) {
		*d = &handles[index][0];
		**d = (struct nvmlDevice_st){.gpu = (int)index, .mig = -1};
	}
	free(st);
	return code;
}

EXPORT ret_t nvmlInit(void) { return init_as(__func__); }
EXPORT ret_t nvmlInit_v2(void) { return init_as(__func__); }
EXPORT ret_t nvmlDeviceGetCount(unsigned *n) { return count_as(__func__, n); }
EXPORT ret_t nvmlDeviceGetCount_v2(unsigned *n) { return count_as(__func__, n); }
EXPORT ret_t nvmlDeviceGetHandleByIndex(unsigned i, device_t *d) { return handle_as(__func__, i, d); }
EXPORT ret_t nvmlDeviceGetHandleByIndex_v2(unsigned i, device_t *d) { return handle_as(__func__, i, d); }

EXPORT ret_t nvmlShutdown(void)
{
	ret_t code = initialised ? OK : UNINITIALIZED;

	initialised = 0;
	return code;
}

EXPORT const char *nvmlErrorString(ret_t code)
{
	int i;

	for (i = 0; i < NCODES; i++)
		if (codes[i].code == code)
			return codes[i].text;
	return "Unknown Error";
}

static ret_t copy(const char *from, char *to, unsigned size)
{
	if (!*from)
		return NOT_SUPPORTED;
	if (strlen(from) >= size)
		return INSUFFICIENT_SIZE;
	strcpy(to, from);
	return OK;
}

EXPORT ret_t nvmlDeviceGetName(device_t d, char *out, unsigned size)
{
	struct state *st;
	ret_t code = on_device(&st, __func__, d);

	if (code == OK)
		code = copy(st->gpus[d->gpu].name, out, size);
	free(st);
	return code;
}

EXPORT ret_t nvmlDeviceGetUUID(device_t d, char *out, unsigned size)
{
	struct state *st;
	ret_t code = on_device(&st, __func__, d);

	if (code == OK)
		code = copy(st->gpus[d->gpu].uuid, out, size);
	free(st);
	return code;
}

struct pci_info {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
};

EXPORT ret_t nvmlDeviceGetPciInfo_v3(device_t d, struct pci_info *out)
{
	struct state *st;
	ret_t code = on_device(&st, __func__, d);

	if (code == OK) {
		memset(out, 0, sizeof *out);
		if (sscanf(st->gpus[d->gpu].pci, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3)
			code = NOT_SUPPORTED;
	}
	free(st);
	return code;
}

struct memory {
	u64 total, free, used;
};

static ret_t memory_as(const char *function, device_t d, struct memory *out)
{
	struct state *st;
	ret_t code = on_device(&st, function, d);

	if (code == OK) {
		const struct gpu *g = &st->gpus[d->gpu];

		if (!g->has_used || !g->has_total)
			code = NOT_SUPPORTED;
		out->total = g->total;
		out->used = g->used;
		out->free = g->total - g->used;
	}
	free(st);
	return code;
}

EXPORT ret_t nvmlDeviceGetMemoryInfo(device_t d, struct memory *out)
{
	return memory_as(__func__, d, out);
}

struct utilization {
	unsigned gpu, memory;
};

EXPORT ret_t nvmlDeviceGetUtilizationRates(device_t d, struct utilization *out)
{
	struct state *st;
	ret_t code = on_device(&st, __func__, d);

	if (code == OK && (!st->gpus[d->gpu].has_util || st->gpus[d->gpu].mig))
		code = NOT_SUPPORTED;
	if (code == OK)
		*out = (struct utilization){.gpu = st->gpus[d->gpu].util};
	free(st);
	return code;
}

struct info_v1 {
	unsigned pid;
	u64 used;
};

struct info_v2 {
	unsigned pid;
	u64 used;
	unsigned gpu_instance, compute_instance;
};

/* processes fills v1 or v2, whichever is not NULL. */
static ret_t processes(const char *function, enum kind kind, device_t d, unsigned *n, struct info_v1 *v1,
		       struct info_v2 *v2)
{
	struct state *st;
	ret_t code = on_device(&st, function, d);
	unsigned room, found = 0;
	int i;

	for (i = 0, room = *n; code == OK && i < st->nprocs; i++) {
		const struct proc *p = &st->procs[i];
		unsigned instance = p->mig < 0 ? ~0U : (unsigned)p->mig;

		if (p->gpu != d->gpu || p->mig != d->mig || p->kind != kind)
			continue;
		if (found < room && v1)
			v1[found] = (struct info_v1){p->pid, p->used};
		if (found < room && v2)
			v2[found] = (struct info_v2){p->pid, p->used, instance, instance};
		found++;
	}
	free(st);
	if (code == OK)
		*n = found;
	return code == OK && found > room ? INSUFFICIENT_SIZE : code;
}

#define PROCESSES_V1(function, kind)                                              \
	EXPORT ret_t function(device_t d, unsigned *n, struct info_v1 *out)       \
	{                                                                         \
		return processes(__func__, kind, d, n, out, NULL);                \
	}
#define PROCESSES_V2(function, kind)                                              \
	EXPORT ret_t function(device_t d, unsigned *n, struct info_v2 *out)       \
	{                                                                         \
		return processes(__func__, kind, d, n, NULL, out);                \
	}

PROCESSES_V1(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
PROCESSES_V1(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)

#ifndef OLD_DRIVER

PROCESSES_V2(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE)
PROCESSES_V2(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
PROCESSES_V2(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS)
PROCESSES_V2(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
PROCESSES_V1(nvmlDeviceGetMPSComputeRunningProcesses, MPS)
PROCESSES_V2(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS)
PROCESSES_V2(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)

struct memory_v2 {
	unsigned version;
	u64 total, reserved, free, used;
};

EXPORT ret_t nvmlDeviceGetMemoryInfo_v2(device_t d, struct memory_v2 *out)
{
	struct memory m = {0};
	ret_t code;

	if (out->version != (sizeof *out | 2 << 24))
		return ARGUMENT_VERSION_MISMATCH;
	code = memory_as(__func__, d, &m);
	out->total = m.total;
	out->used = m.used;
	out->free = m.free;
	out->reserved = 0;
	return code;
}

EXPORT ret_t nvmlDeviceGetMigMode(device_t d, unsigned *current, unsigned *pending)
{
	struct state *st;
	ret_t code = on_device(&st, __func__, d);

	if (code == OK && !st->gpus[d->gpu].has_mig)
		code = NOT_SUPPORTED;
	if (code == OK)
		*current = *pending = st->gpus[d->gpu].mig;
	free(st);
	return code;
}

EXPORT ret_t nvmlDeviceGetMaxMigDeviceCount(device_t d, unsigned *n)
{
	struct state *st;
	ret_t code = on_device(&st, __func__, d);

	*n = code == OK && st->gpus[d->gpu].mig ? MAX_MIGS : 0;
	free(st);
	return code;
}

EXPORT ret_t nvmlDeviceGetMigDeviceHandleByIndex(device_t d, unsigned index, device_t *out)
{
	struct state *st;
	ret_t code = on_device(&st, __func__, d);

	if (code == OK && (index >= MAX_MIGS || !st->gpus[d->gpu].migs[index]))
		code = NOT_FOUND;
	if (code == OK) {
		*out = &handles[d->gpu][index + 1];
		**out = (struct nvmlDevice_st){.gpu = d->gpu, .mig = (int)index};
	}
	free(st);
	return code;
}

#endif
