/* file_elf.c: reads a plugin's ELF headers before the dynamic linker does, because the linker crashes on some files. */
#define _GNU_SOURCE /* RTLD_DEFAULT, dladdr */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hal/status.h"
#include "plugin/file_check.h"
#include "plugin/plugin.h"
#include "sdk/build_flags.h"

enum {
  MAX_SEGMENTS = 64,      /* linkers write about ten */
  MAX_DYNAMIC = 512,      /* number of entries; about thirty are usual */
  MAX_LIBRARY_NAME = 128, /* bytes */
};

typedef struct image_s {
  int file;
  uint64_t size;
  const char *path;
  ElfW(Ehdr) header;
  ElfW(Phdr) segments[MAX_SEGMENTS];
} image_t;

uint64_t hal_process_sanitizers(void) {
  uint64_t bits = HAL_BUILD_FLAGS & (HAL_BUILD_ASAN | HAL_BUILD_TSAN);
  if (dlsym(RTLD_DEFAULT, "__asan_init")) bits |= HAL_BUILD_ASAN; /* linked or preloaded by the program */
  if (dlsym(RTLD_DEFAULT, "__tsan_init")) bits |= HAL_BUILD_TSAN;
  return bits;
}

static int read_at(const image_t *image, uint64_t offset, void *buffer, size_t size) {
  return offset <= image->size && size <= image->size - offset &&
         pread(image->file, buffer, size, (off_t)offset) == (ssize_t)size;
}

/* Returns the machine that this code is compiled for, from the ELF header of the process itself. */
static int own_machine(void) {
  Dl_info info;
  if (!dladdr(&hal_registry, &info)) return EM_NONE;
  return ((const ElfW(Ehdr) *)info.dli_fbase)->e_machine;
}

static hal_status_t check_header(image_t *image) {
  const ElfW(Ehdr) *const header = &image->header;
  const unsigned char own_class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (!read_at(image, 0, &image->header, sizeof image->header) || memcmp(header->e_ident, ELFMAG, SELFMAG))
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s is not a shared object (it has %llu bytes and no ELF header); build or copy "
                         "it again",
                         image->path, (unsigned long long)image->size);
  const int machine = own_machine();
  if (header->e_ident[EI_CLASS] != own_class || header->e_ident[EI_DATA] != ELFDATA2LSB ||
      (machine != EM_NONE && header->e_machine != machine))
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s is built for another processor (ELF machine %d, this process is %d); build "
                         "it for this machine",
                         image->path, header->e_machine, machine);
  if (header->e_type != ET_DYN)
    return hal_error_set(HAL_INCOMPATIBLE, "%s is an ELF file but not a shared object (type %d); link it with -shared",
                         image->path, header->e_type);
  return HAL_OK;
}

static hal_status_t truncated(const image_t *image) {
  return hal_error_set(HAL_INCOMPATIBLE,
                       "%s is damaged or truncated (%llu bytes, its headers need more); build or copy "
                       "it again",
                       image->path, (unsigned long long)image->size);
}

static hal_status_t check_segments(image_t *image) {
  const ElfW(Ehdr) *const header = &image->header;
  if (header->e_phnum == 0 || header->e_phnum > MAX_SEGMENTS || header->e_phentsize != sizeof(ElfW(Phdr)) ||
      !read_at(image, header->e_phoff, image->segments, header->e_phnum * sizeof(ElfW(Phdr))))
    return truncated(image);
  for (int i = 0; i < header->e_phnum; i++) {
    const ElfW(Phdr) *const segment = &image->segments[i];
    uint64_t end;
    if (segment->p_type != PT_LOAD && segment->p_type != PT_DYNAMIC) continue;
    if (__builtin_add_overflow((uint64_t)segment->p_offset, (uint64_t)segment->p_filesz, &end) || end > image->size)
      return truncated(image);
  }
  return HAL_OK;
}

/* Returns the file offset of an address of the image; 0 if no segment contains it. */
static uint64_t file_offset(const image_t *image, uint64_t address) {
  for (int i = 0; i < image->header.e_phnum; i++) {
    const ElfW(Phdr) *const segment = &image->segments[i];
    if (segment->p_type == PT_LOAD && address >= segment->p_vaddr && address - segment->p_vaddr < segment->p_filesz)
      return segment->p_offset + (address - segment->p_vaddr);
  }
  return 0;
}

/* A sanitizer's runtime that is loaded by dlopen ends the process, so the file is rejected first. */
static hal_status_t check_sanitizers(const image_t *image) {
  static const struct {
    const char *library, *name;
    uint64_t bit;
  } runtimes[] = {{"libasan.so", "address", HAL_BUILD_ASAN}, {"libtsan.so", "thread", HAL_BUILD_TSAN}};
  ElfW(Dyn) dynamic[MAX_DYNAMIC];
  size_t count = 0;
  uint64_t strings = 0;
  for (int i = 0; i < image->header.e_phnum; i++) {
    if (image->segments[i].p_type != PT_DYNAMIC) continue;
    count = image->segments[i].p_filesz / sizeof dynamic[0];
    if (count > MAX_DYNAMIC) count = MAX_DYNAMIC;
    if (!read_at(image, image->segments[i].p_offset, dynamic, count * sizeof dynamic[0])) return truncated(image);
  }
  for (size_t i = 0; i < count; i++)
    if (dynamic[i].d_tag == DT_STRTAB) strings = file_offset(image, dynamic[i].d_un.d_ptr);
  const uint64_t present = hal_process_sanitizers();
  for (size_t i = 0; strings && i < count; i++) {
    if (dynamic[i].d_tag != DT_NEEDED) continue;
    char name[MAX_LIBRARY_NAME] = "";
    const uint64_t offset = strings + dynamic[i].d_un.d_val;
    const uint64_t room = offset < image->size ? image->size - offset : 0;
    if (!read_at(image, offset, name, room < sizeof name ? (size_t)room : sizeof name - 1)) return truncated(image);
    for (size_t r = 0; r < sizeof runtimes / sizeof runtimes[0]; r++)
      if (strncmp(name, runtimes[r].library, strlen(runtimes[r].library)) == 0 && !(present & runtimes[r].bit))
        return hal_error_set(HAL_INCOMPATIBLE,
                             "%s was built with the %s sanitizer and this process was not; build it without that, or "
                             "start the program with LD_PRELOAD=%s",
                             image->path, runtimes[r].name, name);
  }
  return HAL_OK;
}

hal_status_t hal_file_check_elf(const char *path) {
  image_t image = {.path = path, .file = open(path, O_RDONLY | O_CLOEXEC)};
  if (image.file < 0)
    return hal_error_set(errno == ENOENT ? HAL_NOT_FOUND : HAL_FAILED_PRECONDITION, "cannot open %s: %s", path,
                         strerror(errno));
  struct stat info;
  hal_status_t status = HAL_OK;
  if (fstat(image.file, &info) || !S_ISREG(info.st_mode)) {
    status = hal_error_set(HAL_INCOMPATIBLE, "%s is not a regular file; expected the path of a shared object", path);
  } else {
    image.size = (uint64_t)info.st_size;
    status = check_header(&image);
    if (!status) status = check_segments(&image);
    if (!status) status = check_sanitizers(&image);
  }
  close(image.file);
  return status;
}
