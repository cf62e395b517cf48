/* profiles_source.h: computes the bytes of local memory per group of a kernel from the layout of its source by
   clang; for profiles.c. */
#ifndef TEST_PROFILES_SOURCE_H_
#define TEST_PROFILES_SOURCE_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes and alignment of a type in LLVM's text at *at, which is advanced past it: numbers, arrays, and structs,
 * which `module` defines. */
typedef struct profile_size_s {
  unsigned long bytes, align;
} profile_size_t;

static profile_size_t profile_size(const char *module, const char **at);

static profile_size_t profile_members(const char *module, const char **at) {
  profile_size_t all = {0, 1};
  *at += strspn(*at, " {");
  while (**at && **at != '}') {
    const profile_size_t one = profile_size(module, at);
    all.bytes = (all.bytes + one.align - 1) / one.align * one.align + one.bytes;
    if (one.align > all.align) all.align = one.align;
    *at += strspn(*at, ", ");
  }
  *at += **at == '}';
  all.bytes = (all.bytes + all.align - 1) / all.align * all.align;
  return all;
}

static profile_size_t profile_size(const char *module, const char **at) {
  static const struct {
    const char *name;
    unsigned long bytes;
  } numbers[] = {{"i8", 1}, {"i16", 2}, {"i32", 4}, {"i64", 8}, {"half", 2}, {"float", 4}, {"double", 8}};
  if (**at == '{') return profile_members(module, at);
  if (**at == '[') {
    char *behind;
    const unsigned long count = strtoul(*at + 1, &behind, 10);
    *at = behind + strlen(" x ");
    profile_size_t one = profile_size(module, at);
    *at += **at == ']';
    one.bytes *= count;
    return one;
  }
  const size_t length = strcspn(*at, " ,]}");
  if (**at == '%') {
    char wanted[200];
    snprintf(wanted, sizeof wanted, "\n%.*s = type ", (int)length, *at);
    const char *definition = strstr(module, wanted);
    *at += length;
    if (!definition) return (profile_size_t){0, 1};
    definition += strlen(wanted);
    return profile_members(module, &definition);
  }
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (strlen(numbers[i].name) == length && memcmp(*at, numbers[i].name, length) == 0) {
      *at += length;
      return (profile_size_t){numbers[i].bytes, numbers[i].bytes};
    }
  *at += length;
  return (profile_size_t){0, 1};
}

/* The output of clang for a source; the caller frees it. NULL without clang, or if it fails. */
static char *profile_compiled(const char *source) {
  char path[] = "/tmp/profiles_XXXXXX", command[600];
  const int file = mkstemp(path);
  if (file < 0) return NULL;
  const size_t size = strlen(source);
  const int written = write(file, source, size) == (ssize_t)size;
  close(file);
  snprintf(command, sizeof command,
           "%s -x cl -cl-std=CL1.2 -target spir64-unknown-unknown -Xclang -finclude-default-header -w -O0 -emit-llvm "
           "-S -o - %s",
           PROFILES_CLANG, path);
  FILE *const compiler = written ? popen(command, "r") : NULL;
  enum { MOST = 16 << 20 };
  char *const text = compiler ? calloc(1, MOST) : NULL;
  const size_t read = text ? fread(text, 1, MOST - 1, compiler) : 0;
  if (compiler) pclose(compiler);
  remove(path);
  if (read) return text;
  free(text);
  return NULL;
}

/* -1 = not known. */
static long profile_local_bytes(const char *source) {
  static const char mark[] = " addrspace(3) global ";
  char *const module = profile_compiled(source);
  unsigned long sum = 0;
  if (!module) return -1;
  for (const char *at = module; (at = strstr(at, mark)) != NULL;) {
    at += strlen(mark);
    sum += profile_size(module, &at).bytes;
  }
  free(module);
  return (long)sum;
}

#endif /* TEST_PROFILES_SOURCE_H_ */
