/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* libbpfcost_uprobe: ordinary uprobe BPF programs in user space, inside the probed process, without the kernel's trap.
 *
 * Linux on x86-64, and root or CAP_SYS_PTRACE and what the kernel wants for loading BPF.
 *
 *	struct bpfcost_uprobe *probes;
 *	struct bpfcost_uprobe_place place = { .program = "count", .name = "handle_request" };
 *	struct bpfcost_uprobe_counts counts;
 *	uint64_t attachment;
 *
 *	if (bpfcost_uprobe_open("count.bpf.o", NULL, &probes))
 *		return fail(bpfcost_uprobe_error());
 *	if (bpfcost_uprobe_attach(probes, 1234, &place, 1, &attachment))
 *		...
 *	bpfcost_uprobe_detach(probes, attachment, &counts, 1);
 *	bpfcost_uprobe_close(probes);
 *
 * ERRORS. A function that returns an int returns 0, or a negative number of <errno.h>; bpfcost_uprobe_error() has the text
 * then. What a call that failed would have written is not written.
 *
 *	-EINVAL		an argument is wrong: NULL, not UTF-8, a key, value or constant of another size, a map of another kind
 *	-ENOENT		there is no such file, program, map, function, USDT probe, key or attachment
 *	-ESRCH		there is no such process, or it ended
 *	-EPERM		no permission; or the map can't be written
 *	-ENOEXEC	libbpf or the kernel can't load the object
 *	-EACCES		the kernel's verifier rejected a program: the text has the end of its log
 *	-EBUSY		a debugger or another probe is there, or the process can't be stopped now; or another call on the same
 *			handle has not returned
 *	-ESTALE		the process runs an older file than the one of that name
 *	-EOPNOTSUPP	the program, or the function, can't be probed in user space: the text says why. Use a kernel uprobe
 *	-ENOMEM, -E2BIG	there is no room; or an array has no such index
 *	-ENOTRECOVERABLE a bug of the library. The handle can only be closed
 *
 * Others come from the system. Texts are for people and may change.
 *
 * THREADS. A handle may be used in any thread, in one at a time. A second call at the same time is -EBUSY, but for
 * bpfcost_uprobe_close: it must be the last. Different handles are independent.
 *
 * FUNCTIONS OF THE CALLER'S must not throw or longjmp. They get memory that is theirs until they return. Within those for
 * records and lines, calls on the handle are -EBUSY.
 *
 * PROCESSES. The library forks small processes of its own, which outlive the caller where it is killed, and restore what
 * is probed. A caller that waits for any child (waitpid(-1, ...)) may see one end: it is safe to ignore.
 *
 * POINTERS have to be NULL, which is -EINVAL unless stated otherwise, or lead to what is described.
 */
#ifndef BPFCOST_UPROBE_H
#define BPFCOST_UPROBE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An opened object, its maps, and where its programs are attached. */
struct bpfcost_uprobe;

/* The value of a `const volatile` variable of the object. */
struct bpfcost_uprobe_constant {
	const char *name;
	const void *value;
	size_t size;
};

struct bpfcost_uprobe_options {
	/* The programs to load, by name; none: those that the object marks for it. */
	const char *const *programs;
	size_t program_count;
	const struct bpfcost_uprobe_constant *constants;
	size_t constant_count;
};

/* Point of a function at which a program runs. */
enum bpfcost_uprobe_at {
	/* Before its first instruction. */
	BPFCOST_UPROBE_ENTRY = 0,
	/* Before it returns, wherever it does, as a uretprobe. */
	BPFCOST_UPROBE_RETURN = 1,
	/* Before the instruction at `offset`. */
	BPFCOST_UPROBE_OFFSET = 2,
	/* At all places of a USDT probe. Its semaphore is raised while it is attached. */
	BPFCOST_UPROBE_USDT = 3,
};

/* A program and where it runs. */
struct bpfcost_uprobe_place {
	const char *program;
	/* A file that the process executes, as the process sees it. NULL: its own program. */
	const char *file;
	/* The provider of a USDT probe; NULL for other places. */
	const char *provider;
	/* The function, or the USDT probe. */
	const char *name;
	/* With BPFCOST_UPROBE_OFFSET: bytes from the beginning of the function; else 0. */
	uint64_t offset;
	/* The result of bpf_get_attach_cookie or bpf_usdt_cookie. */
	uint64_t cookie;
	/* An enum bpfcost_uprobe_at. */
	uint32_t at;
	/* 0. */
	uint32_t reserved;
};

/* Calls: hits + missed. */
struct bpfcost_uprobe_counts {
	/* Runs of the program. */
	uint64_t hits;
	/* Calls without it. */
	uint64_t missed;
};

struct bpfcost_uprobe_map_info {
	/* An enum bpf_map_type of <linux/bpf.h>. */
	uint32_t kind;
	uint32_t key_size;
	/* Bytes of one value, also where there is one of each thread. */
	uint32_t value_size;
	uint32_t max_entries;
	/* 1 if it can only be read (.rodata). */
	uint32_t read_only;
	uint32_t reserved;
};

/* A line of bpf_printk. */
struct bpfcost_uprobe_line {
	/* The process that was attached to: itself, or a child of it, wrote the line. */
	pid_t pid;
	/* The thread, as its own PID namespace numbers it. */
	uint32_t thread;
	uint32_t cpu;
	uint32_t reserved;
	/* Nanoseconds of CLOCK_MONOTONIC. */
	uint64_t time;
	/* Bytes without a zero at the end. */
	const char *text;
	size_t size;
};

/* Gets an entry of a map: a value, or `count` values in a row, one of each thread. */
typedef void (*bpfcost_uprobe_entry_fn)(void *context, const void *key, size_t key_size,
					const void *values, size_t value_size, size_t count);
/* Gets a record of a ring buffer, of the process that was attached to or a child of it. It may be not aligned. */
typedef void (*bpfcost_uprobe_record_fn)(void *context, pid_t pid, const void *record, size_t size);
typedef void (*bpfcost_uprobe_line_fn)(void *context, const struct bpfcost_uprobe_line *line);

/* The library's version, such as "0.1.0". */
const char *bpfcost_uprobe_version(void);

/* The text of the last call that failed in this thread, empty if none did: one line what happened, and often one what to
 * do. It stays until the next call of this library in this thread.
 */
const char *bpfcost_uprobe_error(void);

/* Has the kernel load an object file; nothing is attached. `options` may be NULL. */
int bpfcost_uprobe_open(const char *path, const struct bpfcost_uprobe_options *options,
			struct bpfcost_uprobe **probes);

/* The same from memory. `name` stands in texts of errors and may be NULL. */
int bpfcost_uprobe_open_bytes(const char *name, const void *object, size_t size,
			      const struct bpfcost_uprobe_options *options,
			      struct bpfcost_uprobe **probes);

/* Detaches what is attached, and frees all. The handle is gone then, also where detaching failed; with -EBUSY it is still
 * there. NULL does nothing.
 */
int bpfcost_uprobe_close(struct bpfcost_uprobe *probes);

/* Has forked children of the processes that are attached to from now on run the programs too, and their children. Their
 * calls and records are their parent's. 1,024 children at a time have memory for it, if counts, records or lines are asked
 * for now and then; calls of others are missed.
 */
int bpfcost_uprobe_follow_children(struct bpfcost_uprobe *probes);

/* Attaches programs to places of a process: all of them, or none. Of programs at the same place, the latest runs first.
 * Writes the number of the attachment.
 */
int bpfcost_uprobe_attach(struct bpfcost_uprobe *probes, pid_t pid,
			  const struct bpfcost_uprobe_place *places, size_t count,
			  uint64_t *attachment);

/* Restores the functions. Writes what the program at each place did: no call is between that and the restored functions.
 * `count` is the number of places; or `counts` is NULL and `count` 0. The attachment is gone then, but with -EINVAL and
 * -EBUSY of the handle.
 */
int bpfcost_uprobe_detach(struct bpfcost_uprobe *probes, uint64_t attachment,
			  struct bpfcost_uprobe_counts *counts, size_t count);

/* Writes what the program at each place did so far. `count` is the number of places. */
int bpfcost_uprobe_counts(struct bpfcost_uprobe *probes, uint64_t attachment,
			  struct bpfcost_uprobe_counts *counts, size_t count);

/* Writes 1 if the process ended, or executes another program, and no child that is followed runs the programs; else 0. The
 * attachment stays until it is detached, and its counts can be read.
 */
int bpfcost_uprobe_has_ended(struct bpfcost_uprobe *probes, uint64_t attachment, int *ended);

/* Frees what is kept of processes that ended and to which nothing is attached: values of their threads, and records that
 * were not read.
 */
int bpfcost_uprobe_forget_ended(struct bpfcost_uprobe *probes);

/* The type and sizes of a map. Global variables are in the maps ".bss", ".data" and ".rodata", at index 0. */
int bpfcost_uprobe_map_info(struct bpfcost_uprobe *probes, const char *map,
			    struct bpfcost_uprobe_map_info *info);

/* Copies the value of a key of an array or a hash table. An array's key is its index, of 4 bytes. Sizes are those of the
 * map. -ENOENT if there is no such key.
 */
int bpfcost_uprobe_map_get(struct bpfcost_uprobe *probes, const char *map, const void *key,
			   size_t key_size, void *value, size_t value_size);

/* Gives a key of an array or a hash table a value. */
int bpfcost_uprobe_map_set(struct bpfcost_uprobe *probes, const char *map, const void *key,
			   size_t key_size, const void *value, size_t value_size);

/* Removes a key of a hash table. -ENOENT if it was not there. */
int bpfcost_uprobe_map_delete(struct bpfcost_uprobe *probes, const char *map, const void *key,
			      size_t key_size);

/* Gives each entry of a hash table to a function. The entries are copied before: the function may use the handle, and some
 * that come or go meanwhile may be missing, or there twice.
 */
int bpfcost_uprobe_map_each(struct bpfcost_uprobe *probes, const char *map,
			    bpfcost_uprobe_entry_fn take, void *context);

/* Gives the values of a key of a map that the kernel has per CPU to a function, in one call: one of each thread, copied
 * before. Their sum is the sum over CPUs that a kernel probe has.
 */
int bpfcost_uprobe_map_threads(struct bpfcost_uprobe *probes, const char *map, const void *key,
			       size_t key_size, bpfcost_uprobe_entry_fn take, void *context);

/* Gives an index of a per-CPU array a value, in all threads of the processes that have the map. */
int bpfcost_uprobe_map_set_threads(struct bpfcost_uprobe *probes, const char *map, uint32_t index,
				   const void *value, size_t value_size);

/* Copies the addresses of a stack by the number that bpf_get_stackid returned, the innermost first: at most `room` of
 * them. Writes how many there are. -ENOENT if there is none.
 */
int bpfcost_uprobe_map_stack(struct bpfcost_uprobe *probes, const char *map, uint32_t number,
			     uint64_t *addresses, size_t room, size_t *count);

/* Gives the records that were written to a ring buffer so far to a function, of each process in their order. It waits for
 * nothing.
 */
int bpfcost_uprobe_records(struct bpfcost_uprobe *probes, const char *map,
			   bpfcost_uprobe_record_fn take, void *context);

/* Writes how many records a ring buffer had no room for. */
int bpfcost_uprobe_lost_records(struct bpfcost_uprobe *probes, const char *map, uint64_t *lost);

/* Gives the lines of bpf_printk that were written so far to a function, of each process in their order. */
int bpfcost_uprobe_lines(struct bpfcost_uprobe *probes, bpfcost_uprobe_line_fn take, void *context);

/* Writes how many lines there was no room for. */
int bpfcost_uprobe_lost_lines(struct bpfcost_uprobe *probes, uint64_t *lost);

#ifdef __cplusplus
}
#endif

#endif
