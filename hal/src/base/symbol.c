/* symbol.c: see symbol.h. Every offset of the file is checked, because it may change or be truncated. */
#define _GNU_SOURCE
#include "base/symbol.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct file_s {
  const char *data;
  size_t size;
} file_t;

/* Returns `size` bytes at an offset of the file; NULL if it is shorter, or they are not aligned. */
static const void *at(const file_t *file, uint64_t offset, uint64_t size, size_t alignment) {
  uint64_t end = 0;
  if (__builtin_add_overflow(offset, size, &end) || end > file->size || offset % alignment) return NULL;
  return file->data + offset;
}

static uintptr_t first_address(const file_t *file, const ElfW(Ehdr) * header) {
  const uint64_t bytes = (uint64_t)header->e_phnum * sizeof(ElfW(Phdr));
  const ElfW(Phdr) *const segments = at(file, header->e_phoff, bytes, _Alignof(ElfW(Phdr)));
  for (size_t i = 0; segments && i < header->e_phnum; i++)
    if (segments[i].p_type == PT_LOAD) return (uintptr_t)(segments[i].p_vaddr & ~UINT64_C(4095));
  return 0;
}

/* Searches the symbols of one section. */
static int search(const file_t *file, const ElfW(Shdr) * symbols, const ElfW(Shdr) * names, uintptr_t address,
                  char *name, size_t size) {
  const ElfW(Sym) *const all = at(file, symbols->sh_offset, symbols->sh_size, _Alignof(ElfW(Sym)));
  const char *const text = at(file, names->sh_offset, names->sh_size, 1);
  if (!all || !text || !names->sh_size || text[names->sh_size - 1]) return 0;
  for (size_t i = 0; i < symbols->sh_size / sizeof *all; i++) {
    const ElfW(Sym) *const symbol = &all[i];
    if ((symbol->st_info & 15) != STT_FUNC || symbol->st_name >= names->sh_size) continue;
    if (address < symbol->st_value || address - symbol->st_value >= symbol->st_size) continue;
    snprintf(name, size, "%s", text + symbol->st_name);
    return 1;
  }
  return 0;
}

static int find(const file_t *file, uintptr_t offset, char *name, size_t size) {
  const ElfW(Ehdr) *const header = at(file, 0, sizeof *header, _Alignof(ElfW(Ehdr)));
  if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return 0;
  const uint64_t bytes = (uint64_t)header->e_shnum * sizeof(ElfW(Shdr));
  const ElfW(Shdr) *const sections = at(file, header->e_shoff, bytes, _Alignof(ElfW(Shdr)));
  for (size_t i = 0; sections && i < header->e_shnum; i++)
    if (sections[i].sh_type == SHT_SYMTAB && sections[i].sh_link < header->e_shnum)
      return search(file, &sections[i], &sections[sections[i].sh_link], offset + first_address(file, header), name,
                    size);
  return 0;
}

int hal_symbol_name(const char *path, uintptr_t offset, char *name, size_t size) {
  struct stat about;
  int found = 0;
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  if (fstat(descriptor, &about) == 0 && about.st_size > 0) {
    void *const data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data != MAP_FAILED) {
      const file_t file = {.data = data, .size = (size_t)about.st_size};
      found = find(&file, offset, name, size);
      munmap(data, file.size);
    }
  }
  close(descriptor);
  return found;
}
