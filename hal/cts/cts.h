/* cts.h: the common functions of the conformance suite's cases. Private to hal/cts.
 *
 * A case is a function that runs in a separate child process, with a newly loaded plugin. It ends by returning (the
 * rules that it named hold) or in cts_fail and cts_skip, which do not return: the child ends there, so that a case
 * frees nothing after a finding. Parent and child share one page, cts_page_t; after a crash it has the function and the
 * rule that were being tested. */
#ifndef HAL_CTS_CTS_H_
#define HAL_CTS_CTS_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/call.h"

enum { CTS_NONE, CTS_PASS, CTS_FAIL, CTS_SKIP, CTS_BLOCKED, CTS_XFAIL, CTS_UNSUPPORTED };
enum { CTS_TEXT = 1024, CTS_RULES_MAX = 640, CTS_CASES_MAX = 300, CTS_NO_RULE = 0xffff };

/* Requirements of a case; if one is missing, the case is skipped with the reason. */
enum {
  CTS_ASYNC = 1,     /* a device with HAL_DEVICE_ASYNC, with its own streams and host calls */
  CTS_PROVIDED = 2,  /* the plugin implements the function of the case's rule */
  CTS_TWO = 4,       /* two devices */
  CTS_EVENTS = 8,    /* the plugin's own events and stream_wait_event; the defaults wait for the stream */
  CTS_UNLOADED = 16, /* the case loads the plugin itself */
};

/* A measurement or a description for the report; it does not affect a verdict. */
enum { CTS_ROWS_MAX = 1024 };
typedef struct cts_row_s {
  char table[16], name[48], text[128];
} cts_row_t;

/* Memory that parent and child share. */
typedef struct cts_page_s {
  atomic_int verdict, ending; /* ending: a thread is writing the verdict */
  atomic_uint slot;           /* the function that is running, HAL_SLOT_COUNT: none */
  atomic_uint last_slot;      /* the previous one */
  atomic_uint sequence;       /* calls so far */
  atomic_uint rule;           /* the rule that is being tested */
  /* the rule of the verdict, if a case has set it: a second process may be testing another one */
  uint32_t verdict_rule;
  atomic_uchar held[CTS_RULES_MAX];  /* rules that held in this case */
  atomic_uint calls[HAL_SLOT_COUNT]; /* calls of each function */
  char text[CTS_TEXT];               /* evidence, or why the case was skipped */
  uint8_t provided[HAL_SLOT_COUNT];  /* by the last plugin that was loaded */
  uint64_t flags;                    /* HAL_DEVICE_* */
  uint32_t process_known;            /* CTS_FILES ... that a case has reported; kept from case to case */
  int32_t device_count;
  uint32_t row_count; /* of this case */
  cts_row_t rows[CTS_ROWS_MAX];
  char name[64], version[64], device_name[64], dialects[64];
} cts_page_t;

typedef struct cts_s {
  hal_plugin_t *plugin;
  cts_page_t *page;
  const char *path;
  const char *fault;              /* NAME=VALUE of --fault, or NULL */
  const char *compiler, *dialect; /* of --compiler and --dialect, or NULL */
  int32_t device;
  hal_device_info_t info;
  void *scratch; /* for the case */
} cts_t;

/* ---- the tables ---- */
typedef struct cts_rule_s {
  const char *id;
  uint32_t slot;
  const char *text;
} cts_rule_t;
extern const cts_rule_t cts_rules[];
extern const uint32_t cts_rule_count;
/* Finds the rule of the slot (HAL_SLOT_COUNT: of the general rules) that contains `phrase`; CTS_NO_RULE if there is
 * none. */
uint32_t cts_rule_find(uint32_t slot, const char *phrase);
/* Returns the function's name without hal_plugin_. */
const char *cts_slot_name(uint32_t slot);

/* The operators that the host looks up, by their numbers. */
extern const char *const cts_operators[];
extern const uint32_t cts_operator_count;
uint32_t cts_operator_number(const char *name);

typedef struct cts_case_s {
  const char *suite, *name;
  uint32_t slot;
  const char *phrase;
  const char *depends; /* ids of cases, separated by spaces */
  uint32_t needs;      /* CTS_* */
  void (*run)(cts_t *t);
} cts_case_t;
#define CTS_CASE(suite, name, slot, phrase, depends, needs) void cts_case_##suite##_##name(cts_t *t);
#include "cases.def"
#undef CTS_CASE
extern const cts_case_t cts_cases[];
extern const uint32_t cts_case_count;

/* child.c: loads the plugin, as for all cases except those of CTS_UNLOADED. */
void cts_start(cts_t *t);
/* The first part of cts_start: what a host does that only lists plugins and devices. */
void cts_look(cts_t *t);

/* Sets the variable of --fault, before the plugin is loaded. */
void cts_fault_set(cts_t *t);

/* ---- verdicts; they do not return ---- */
#define CTS_NORETURN __attribute__((noreturn))
#define CTS_PRINTF(text, first) __attribute__((format(printf, text, first)))
CTS_NORETURN void cts_fail(cts_t *t, const char *format, ...) CTS_PRINTF(2, 3);
CTS_NORETURN void cts_skip(cts_t *t, const char *format, ...) CTS_PRINTF(2, 3);
/* Adds a row to a table of the report. */
void cts_row(cts_t *t, const char *table, const char *name, const char *format, ...) CTS_PRINTF(4, 5);
/* Starts testing this rule; the previous one held. */
void cts_judge(cts_t *t, uint32_t slot, const char *phrase);
uint32_t cts_judged(void); /* Returns the rule that this process tests. */
#define CTS_JUDGE(t, slot, phrase) cts_judge(t, HAL_SLOT_##slot, phrase)
#define CTS_GENERAL(t, phrase) cts_judge(t, HAL_SLOT_COUNT, phrase)
#define CTS_CHECK(t, condition, ...) ((condition) ? (void)0 : cts_fail(t, __VA_ARGS__))

/* ---- calls: each is recorded on the page before it is made ---- */
static inline void cts_enter(cts_t *t, uint32_t slot) {
  atomic_fetch_add(&t->page->sequence, 1);
  atomic_fetch_add(&t->page->calls[slot], 1);
  atomic_store(&t->page->slot, slot);
}
static inline hal_status_t cts_leave(cts_t *t, uint32_t slot, hal_status_t status) {
  atomic_store(&t->page->last_slot, slot);
  atomic_store(&t->page->slot, HAL_SLOT_COUNT);
  return status;
}
#define HAL_OP(since, kind, group, need, name, params, args)                            \
  static inline hal_status_t cts_##name(cts_t *t, HAL_UNPAREN params) {                 \
    cts_enter(t, HAL_SLOT_##name);                                                      \
    return cts_leave(t, HAL_SLOT_##name, hal_call_##name(t->plugin, HAL_UNPAREN args)); \
  }
#include "hal/plugin_ops.def"
#undef HAL_OP

/* Fails with the function's first rule if the call does not return HAL_OK. */
void cts_expect_ok(cts_t *t, uint32_t slot, hal_status_t status);
#define CTS_OK(t, name, ...) cts_expect_ok(t, HAL_SLOT_##name, cts_##name(t, __VA_ARGS__))
/* Fails with the current rule if the call does not return this status. */
void cts_expect(cts_t *t, uint32_t slot, hal_status_t status, hal_status_t expected);
#define CTS_STATUS(t, expected, name, ...) cts_expect(t, HAL_SLOT_##name, cts_##name(t, __VA_ARGS__), expected)

/* process.c: the process state that the plugin must not change. Changes that an earlier case has reported are not
 * reported again. */
enum { CTS_FILES = 1, CTS_OUTPUT = 2, CTS_FOLDER = 4 };
int cts_process_signals_are_the_same(char *text, size_t size);

int cts_provides(const cts_t *t, uint32_t slot);
#define CTS_PROVIDES(t, name) cts_provides(t, HAL_SLOT_##name)
int cts_is_async(const cts_t *t);

/* ---- flags.c ---- */
/* Calls `use` with each flag outside `known` alone, and with all of them; fails if one is not HAL_UNIMPLEMENTED. */
void cts_refuses_flags(cts_t *t, uint32_t known, hal_status_t (*use)(cts_t *t, uint32_t flags));

/* ---- data.c: memory and numbers ---- */
void *cts_alloc(cts_t *t, size_t size);
void cts_free(cts_t *t, void *ptr);
uint8_t *cts_host(cts_t *t, size_t size); /* ordinary memory, zeroed; valid until the child ends */
/* Memory for copies that the suite queues after work that it holds back: page-locked if the plugin implements
 * host_alloc, because a copy of pageable memory may wait. Valid until the child ends; not freed with free(). */
uint8_t *cts_pinned(cts_t *t, size_t size);
hal_plugin_stream_t *cts_stream(cts_t *t);
hal_plugin_event_t *cts_event(cts_t *t, uint32_t flags);
void cts_put(cts_t *t, hal_plugin_stream_t *stream, void *device_ptr, const void *host, size_t size);
void cts_get(cts_t *t, hal_plugin_stream_t *stream, void *host, const void *device_ptr, size_t size);
void cts_sync(cts_t *t, hal_plugin_stream_t *stream);
/* Fills bytes from `seed` and their position. */
void cts_noise(void *bytes, size_t size, uint64_t seed);
/* Fails if the bytes differ, with the first position and both values. */
void cts_same(cts_t *t, const void *got, const void *expected, size_t size, const char *what);
int64_t cts_now_ns(void);
void cts_nap(void); /* a millisecond, between two checks of another thread */

/* ---- number.c: numbers of all dtypes ---- */
typedef struct cts_number_s {
  double d;  /* of floating-point dtypes, and the real part */
  int64_t i; /* of integers and bool */
  double im; /* of complex dtypes: the imaginary part */
} cts_number_t;
int cts_is_float(hal_dtype_t dtype); /* of 16, 32 or 64 bits */
int cts_is_float8(hal_dtype_t dtype);
int cts_is_complex(hal_dtype_t dtype);
size_t cts_dtype_size(hal_dtype_t dtype); /* bytes of an element */
const char *cts_dtype_name(hal_dtype_t dtype);
double cts_dtype_step(hal_dtype_t dtype); /* from 1 to the next number, of floating-point dtypes */
cts_number_t cts_number_read(hal_dtype_t dtype, const void *from);
/* Rounds to the nearest number, or truncates an integer to its size; bool: 0 or 1. */
void cts_number_write(hal_dtype_t dtype, cts_number_t number, void *to);

/* ---- gate.c: a stream that is held until the case releases it ---- */
typedef struct cts_gate_s {
  cts_t *t;
  atomic_int open, entered, left;
  long caller;   /* the thread that closed it */
  int may_block; /* the case expects its call to wait */
} cts_gate_t;
/* A gate is static, because its stream may read it after the case has ended. */
/* Queues on the stream a host call that does not return before the gate is open. While it is closed, a call of the
 * closing thread that waits for it is a finding: the watch detects that every thread of the process sleeps and that the
 * call does not return. */
void cts_gate_close(cts_t *t, cts_gate_t *gate, hal_plugin_stream_t *stream);
void cts_gate_open(cts_gate_t *gate);
/* Opens the gate from another thread, once the caller sleeps in its next call or some time has passed;
 * cts_gate_was_open then returns whether a call returned too early, whatever the machine's speed. */
void cts_gate_open_later(cts_gate_t *gate);
int cts_gate_was_open(const cts_gate_t *gate);

#endif /* HAL_CTS_CTS_H_ */
