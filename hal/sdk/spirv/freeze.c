/* freeze.c: removes `freeze` from LLVM IR text, because not every version of the translator to SPIR-V supports it.
 *
 * `freeze x` is x, unless x is undef or poison: then it is any one value, the same for all its uses. The optimizer
 * inserts it where it uses a number twice that was used once, as in x % 8 = x - x / 8 * 8. SPIR-V of the versions used
 * here has no poison: "no wrap" and "exact" are not translated, so that arithmetic on integers has one definite result
 * for definite operands, wrapped on overflow. A chain of such instructions over a kernel's arguments, values loaded
 * from memory and a work-item's position is definite, and `freeze` of it is the value itself. If the chain contains
 * anything else (undef, a shift by an unknown number, a conversion from floating point, local memory of the thread that
 * may be uninitialized), nothing is changed. */
#include "freeze.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

enum { MOST_VALUES = 256, NAME_BYTES = 64 };

/* ---- text -------------------------------------------------------------------------------------------------------- */

typedef struct part_s {
  const char *text;
  size_t length;
} part_t;

static int begins(const char *text, const char *word) { return strncmp(text, word, strlen(word)) == 0; }

static part_t line_at(const char *at) { return (part_t){at, strcspn(at, "\n")}; }

static int has(part_t line, const char *word) {
  const size_t length = strlen(word);
  for (size_t i = 0; i + length <= line.length; i++)
    if (strncmp(line.text + i, word, length) == 0) return 1;
  return 0;
}

/* A name, including its %. */
static part_t name_at(const char *at) {
  size_t length = 1;
  while (isalnum((unsigned char)at[length]) || strchr("._-$", at[length] ? at[length] : ' ')) length++;
  return (part_t){at, length};
}

/* Returns the text of the function that contains a position: numbers are valid only within their function. */
static part_t function_around(char *ir, const char *at) {
  const char *first = at, *end = strstr(at, "\n}");
  while (first > ir && !(first[-1] == '\n' && begins(first, "define "))) first--;
  return (part_t){first, end ? (size_t)(end - first) : strlen(first)};
}

/* Returns the text after " %name = "; of length 0 if the name is a parameter's. */
static part_t definition_of(part_t function, part_t name) {
  const char *const end = function.text + function.length;
  for (const char *at = function.text; at && at < end; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (strncmp(at, "  ", 2) == 0 && strncmp(at + 2, name.text, name.length) == 0 &&
        begins(at + 2 + name.length, " = "))
      return line_at(at + 2 + name.length + 3);
  }
  return (part_t){"", 0};
}

/* ---- definite values --------------------------------------------------------------------------------------------- */

/* The operands that an instruction needs for its value to be definite. */
typedef enum kind_e { UNKNOWN, DEFINITE, AS_OPERANDS } kind_e;

/* Calls of the language's functions that return a work-item's position; others may return anything. */
static int is_position_call(part_t line) {
  static const char *const names[] = {"@_Z13get_global_idj(",   "@_Z12get_local_idj(",   "@_Z12get_group_idj(",
                                      "@_Z15get_global_sizej(", "@_Z14get_local_sizej(", "@_Z14get_num_groupsj("};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (has(line, names[i])) return 1;
  return 0;
}

static kind_e kind_of(part_t line) {
  static const char *const arithmetic[] = {"add ",  "sub ",  "mul ",  "and ",  "or ",    "xor ", "sdiv ",   "udiv ",
                                           "srem ", "urem ", "zext ", "sext ", "trunc ", "phi ", "select ", "icmp "};
  static const char *const shifts[] = {"shl ", "lshr ", "ashr "};
  if (!line.length) return DEFINITE; /* a parameter */
  if (has(line, " undef") || has(line, " poison") || has(line, "<")) return UNKNOWN;
  if (has(line, "call spir_func ")) return is_position_call(line) ? DEFINITE : UNKNOWN;
  if (begins(line.text, "load ")) return has(line, "addrspace(1)") || has(line, "addrspace(2)") ? DEFINITE : UNKNOWN;
  for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++)
    if (begins(line.text, shifts[i])) {
      const char *const by = memchr(line.text, ',', line.length);
      return by && begins(by, ", ") && isdigit((unsigned char)by[2]) ? AS_OPERANDS : UNKNOWN;
    }
  for (size_t i = 0; i < sizeof arithmetic / sizeof *arithmetic; i++)
    if (begins(line.text, arithmetic[i])) return AS_OPERANDS;
  return UNKNOWN;
}

/* The names whose definitions are examined. */
typedef struct chain_s {
  part_t names[MOST_VALUES];
  size_t count;
} chain_t;

/* Returns 0 if there are too many. */
static int add(chain_t *chain, part_t name) {
  for (size_t i = 0; i < chain->count; i++)
    if (chain->names[i].length == name.length && strncmp(chain->names[i].text, name.text, name.length) == 0) return 1;
  if (chain->count == MOST_VALUES || name.length > NAME_BYTES) return 0;
  chain->names[chain->count++] = name;
  return 1;
}

/* Labels of blocks among a phi's operands look like values: they have no definition, like parameters. */
static int add_operands(chain_t *chain, part_t line) {
  for (size_t i = 0; i < line.length; i++)
    if (line.text[i] == '%' && !add(chain, name_at(line.text + i))) return 0;
  return 1;
}

static int is_definite(part_t function, part_t name) {
  chain_t chain = {.count = 0};
  add(&chain, name);
  for (size_t i = 0; i < chain.count; i++) {
    const part_t line = definition_of(function, chain.names[i]);
    const kind_e kind = kind_of(line);
    if (kind == UNKNOWN || (kind == AS_OPERANDS && !add_operands(&chain, line))) return 0;
  }
  return 1;
}

/* ---- replacing --------------------------------------------------------------------------------------------------- */

/* "freeze i32 %7" becomes "add i32 %7, 0", of the same length: values keep their numbers. Returns whether it was
 * replaced. */
static int replace(char *ir, char *at) {
  const size_t type = strlen("freeze ");
  if (at[type] != 'i') return 0; /* may be the end of the text */
  const size_t digits = strspn(at + type + 1, "0123456789");
  if (!digits || !begins(at + type + 1 + digits, " %")) return 0;
  const part_t name = name_at(at + type + 1 + digits + 1);
  if (!is_definite(function_around(ir, at), name)) return 0;
  const size_t length = (size_t)(name.text + name.length - at) - type;
  memcpy(at, "add ", 4);
  memmove(at + 4, at + type, length);
  memcpy(at + 4 + length, ", 0", 3);
  return 1;
}

int hal_thaw(char *ir) {
  static const char word[] = " = freeze ";
  int count = 0;
  for (char *at = ir; (at = strstr(at, word)); count++)
    if (!replace(ir, at + 3)) return 0;
  return count;
}
