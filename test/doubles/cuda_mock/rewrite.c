/* rewrite.c: kernels become inline functions, asm of one instruction of PTX becomes a call, and dynamic shared
 * memory (`extern __shared__`) a pointer. */
#include "rewrite.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHARED_NAMES = 16, MOST_OPERANDS = 8, EXPRESSION_BYTES = 512 };

typedef struct reader_s {
  const char *at;
  FILE *to;
  rewritten_t *out;
  struct {
    char name[NAME_BYTES], type[NAME_BYTES];
  } shared[MOST_SHARED_NAMES];
  unsigned shared_count;
} reader_t;

static int starts_name(char c) { return isalpha((unsigned char)c) || c == '_'; }
static int is_of_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static const char *skip_space(const char *at) {
  while (isspace((unsigned char)*at)) at++;
  return at;
}

static size_t name_length(const char *at) {
  size_t length = 0;
  while (is_of_name(at[length])) length++;
  return length;
}

static int is_name(const char *at, size_t length, const char *name) {
  return strlen(name) == length && memcmp(at, name, length) == 0;
}

/* The end of a literal that begins at `at`. */
static const char *skip_literal(const char *at) {
  const char quote = *at++;
  for (; *at && *at != quote; at++)
    if (*at == '\\' && at[1]) at++;
  return *at ? at + 1 : at;
}

static void fail(reader_t *reader, const char *what) {
  if (!reader->out->problem[0]) snprintf(reader->out->problem, sizeof reader->out->problem, "%s", what);
}

/* ---- kernels ---- */

/* After `__global__`: the name is the last one before the first bracket. */
static void note_kernel(reader_t *reader) {
  rewritten_t *const out = reader->out;
  const char *at = reader->at, *name = NULL;
  size_t length = 0;
  for (; *at && *at != '(' && *at != ';' && *at != '{'; at++)
    if (starts_name(*at)) {
      name = at;
      length = name_length(at);
      at += length - 1;
    }
  if (!name || length >= NAME_BYTES) return;
  for (unsigned i = 0; i < out->kernel_count; i++)
    if (is_name(name, length, out->kernels[i])) return;
  if (out->kernel_count == MOST_KERNELS) {
    fail(reader, "too many kernels for the mock driver");
    return;
  }
  snprintf(out->kernels[out->kernel_count++], NAME_BYTES, "%.*s", (int)length, name);
}

/* ---- asm ---- */

/* The text in the brackets that follow, and the text after them; NULL = there are none. */
static const char *in_brackets(const char *at, char *text, size_t room) {
  at = skip_space(at);
  if (*at != '(') return NULL;
  const char *const begin = ++at;
  for (int depth = 1; *at; at++) {
    if (*at == '"' || *at == '\'') {
      at = skip_literal(at) - 1;
      continue;
    }
    depth += (*at == '(') - (*at == ')');
    if (!depth) break;
  }
  if (!*at || (size_t)(at - begin) >= room) return NULL;
  snprintf(text, room, "%.*s", (int)(at - begin), begin);
  return at + 1;
}

/* `"=f"(result) : "h"(x.bits) : "memory"`: the operands' expressions, one after the other; a clobber has none. */
static unsigned operands_of(const char *at, char operands[][EXPRESSION_BYTES]) {
  unsigned count = 0;
  while (*at && count < MOST_OPERANDS) {
    if (*at == '"') {
      at = skip_space(skip_literal(at));
      if (*at != '(') break;
      at = in_brackets(at, operands[count], EXPRESSION_BYTES);
      if (!at) return 0;
      count++;
    } else {
      at++;
    }
  }
  return count;
}

/* Returns whether there is a result after the code: `: "=f"(x)`, and not `: : "l"(p)`. */
static int has_result(const char *at) {
  at = skip_space(at);
  if (*at == ':') at = skip_space(at + 1);
  return *at == '"';
}

/* asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits)) becomes result = cuda_mock_ptx_cvt_f32_f16(x.bits),
   and one without a result becomes a call. */
static void write_asm(reader_t *reader) {
  char text[2048], mnemonic[64], operands[MOST_OPERANDS][EXPRESSION_BYTES];
  const char *at = skip_space(reader->at);
  if (is_name(at, name_length(at), "volatile")) at += strlen("volatile");
  const char *const behind = in_brackets(at, text, sizeof text);
  const char *const code = skip_space(text);
  const size_t length = *code == '"' ? strcspn(code + 1, " ") : 0;
  const unsigned count = behind ? operands_of(skip_literal(code), operands) : 0;
  if (!length || length >= sizeof mnemonic || count < 2) {
    fail(reader, "asm that is not one instruction with two operands or more");
    return;
  }
  const unsigned results = has_result(skip_literal(code)) ? 1 : 0;
  snprintf(mnemonic, sizeof mnemonic, "%.*s", (int)length, code + 1);
  for (char *dot = mnemonic; (dot = strchr(dot, '.'));) *dot = '_';
  if (results) fprintf(reader->to, "%s = ", operands[0]);
  fprintf(reader->to, "cuda_mock_ptx_%s(", mnemonic);
  for (unsigned i = results; i < count; i++) fprintf(reader->to, "%s%s", i > results ? ", " : "", operands[i]);
  fputs(")", reader->to);
  reader->at = behind;
}

/* ---- dynamic shared memory ---- */

/* After `extern`: the macro has expanded __shared__ to `static thread_local T name[];`. Returns whether it matches. */
static int note_shared(reader_t *reader) {
  const char *at = skip_space(reader->at);
  if (!is_name(at, name_length(at), "static")) return 0;
  at = skip_space(at + strlen("static"));
  if (!is_name(at, name_length(at), "thread_local")) return 0;
  const char *const type = skip_space(at + strlen("thread_local")), *const end = type + strcspn(type, "[;"),
                    *name = end;
  while (name > type && isspace((unsigned char)name[-1])) name--;
  const char *const name_end = name;
  while (name > type && is_of_name(name[-1])) name--;
  if (*end != '[' || name == name_end || reader->shared_count == MOST_SHARED_NAMES) {
    fail(reader, "extern __shared__ of an unknown form");
    return 1;
  }
  snprintf(reader->shared[reader->shared_count].name, NAME_BYTES, "%.*s", (int)(name_end - name), name);
  snprintf(reader->shared[reader->shared_count++].type, NAME_BYTES, "%.*s", (int)(name - type), type);
  reader->at = end + strcspn(end, ";");
  return 1;
}

/* ---- the text ---- */

static void write_name(reader_t *reader) {
  const char *const name = reader->at;
  const size_t length = name_length(name);
  reader->at += length;
  if (is_name(name, length, "__global__")) {
    fputs("inline __attribute__((always_inline))", reader->to);
    note_kernel(reader);
  } else if (is_name(name, length, "asm") || is_name(name, length, "__asm__")) {
    write_asm(reader);
  } else if (is_name(name, length, "extern") && note_shared(reader)) {
    return;
  } else {
    reader->out->has_barrier |= is_name(name, length, "__syncthreads") || is_name(name, length, "__shfl_down_sync");
    for (unsigned i = 0; i < reader->shared_count; i++)
      if (is_name(name, length, reader->shared[i].name)) {
        fprintf(reader->to, "((%s *)cuda_mock_shared)", reader->shared[i].type);
        return;
      }
    fwrite(name, 1, length, reader->to);
  }
}

void rewrite(const char *text, FILE *to, rewritten_t *out) {
  reader_t reader = {.at = text, .to = to, .out = out};
  memset(out, 0, sizeof *out);
  while (*reader.at && !out->problem[0]) {
    const char *const begin = reader.at;
    if (starts_name(*begin)) {
      write_name(&reader);
      continue;
    }
    if (*begin == '"' || *begin == '\'')
      reader.at = skip_literal(begin);
    else if (*begin == '#') /* line markers of the preprocessor */
      reader.at += strcspn(begin, "\n");
    else if (isdigit((unsigned char)*begin)) /* 1e5f, 0x1p5: their letters are not identifiers */
      while (is_of_name(*reader.at) || *reader.at == '.') reader.at++;
    else
      reader.at++;
    fwrite(begin, 1, (size_t)(reader.at - begin), to);
  }
}
