/* library.c: libraries that are opened at run time: the file of the setting, else by the loader's search, else in the
 * toolkit's folder. Without a library the portable kernels run. */
#include "library.h"

#include <hal/plugin_setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the text that names the replacement for the library. */
static const char *substitute(const cuda_library_t *library) {
  return library->without ? library->without : "the portable kernels compute";
}

/* A library for a later major version of CUDA than the driver's does not run on it. */
static void choose_names(cuda_library_t *library) {
  const char *const named = hal_setting(library->setting);
  const int driver = cuda_loader_cuda_version() / 1000;
  size_t count = 0;
  if (named && *named) {
    library->opened.names[0] = named;
    return;
  }
  for (int i = 0; i < CUDA_LIBRARY_FILES && library->files[i]; i++)
    if (!library->cuda_of_file || library->cuda_of_file - i <= driver)
      library->opened.names[count++] = library->files[i];
  if (cuda_find_in_toolkit(library->linked, library->in_toolkit, sizeof library->in_toolkit))
    library->opened.names[count++] = library->in_toolkit;
  if (library->package && cuda_find_in_packages(library->package, library->in_package, sizeof library->in_package))
    library->opened.names[count] = library->in_package;
}

/* The table begins with a function of the library. */
static const char *file_of(const cuda_library_t *library) {
  void *function = NULL;
  memcpy(&function, (const char *)library->opened.table + library->opened.symbols[0].offset, sizeof function);
  return cuda_file_of(function);
}

static hal_status_t check_version(const cuda_library_t *library) {
  cuda_library_version_t version = {0, 0, 0, 0};
  const int driver = cuda_loader_cuda_version();
  library->version(&version);
  if (version.major * 100 + version.minor < library->oldest)
    return cuda_error(HAL_UNAVAILABLE, 0, "cuda: %s is %s %d.%d, too old; %s", file_of(library), library->name,
                      version.major, version.minor, library->opened.advice);
  if (version.cuda > driver / 1000)
    return cuda_error(
        HAL_UNAVAILABLE, 0,
        "cuda: %s is %s %d.%d of CUDA %d, and the driver is made for CUDA %d.%d; install a later driver or "
        "a %s of its version; until then %s %s",
        file_of(library), library->name, version.major, version.minor, version.cuda, driver / 1000, driver % 1000 / 10,
        library->name, substitute(library), library->work);
  return HAL_OK;
}

/* A missing library is not a failure, unless it was requested. The value "none" leaves the library out. */
static hal_status_t open_library(cuda_library_t *library) {
  char message[256];
  const char *const named = hal_setting(library->setting);
  if (named && strcmp(named, "none") == 0) {
    snprintf(message, sizeof message, "cuda: %s is not used (%s=none); %s %s", library->name, library->setting,
             substitute(library), library->work);
    hal_host->log(HAL_LOG_INFO, message);
    return HAL_NOT_FOUND;
  }
  if (!library->named) choose_names(library);
  library->named = 1;
  const hal_status_t status = hal_library_open(&library->opened);
  if (!status) return check_version(library);
  if (named && *named) return status;
  snprintf(message, sizeof message, "cuda: no %s was found, %s %s; install %s, or set %s to its file", library->linked,
           substitute(library), library->work, library->name, library->setting);
  hal_host->log(HAL_LOG_INFO, message);
  return HAL_NOT_FOUND;
}

/* The context is current. */
static hal_status_t serve_device(cuda_library_t *library, int32_t ordinal) {
  char message[CUDA_LIBRARY_PATH + 256];
  const cuda_device_t *const device = &cuda.devices[ordinal];
  cuda_library_version_t version = {0, 0, 0, 0};
  const hal_status_t status = open_library(library);
  if (status) return status;
  library->version(&version);
  const int code = library->serve(ordinal);
  if (code)
    return cuda_error(HAL_UNAVAILABLE, code, "cuda: %s (%s %d.%d) does not serve '%s': %s (%d); %s %s",
                      file_of(library), library->name, version.major, version.minor, device->name,
                      library->code_name(code), code, substitute(library), library->work);
  snprintf(message, sizeof message, "cuda: %s of '%s' are computed by %s %d.%d.%d, %s", library->work, device->name,
           library->name, version.major, version.minor, version.patch, file_of(library));
  hal_host->log(HAL_LOG_INFO, message);
  return HAL_OK;
}

hal_status_t cuda_library_serve(cuda_library_t *library, int32_t device) {
  const uint64_t bit = UINT64_C(1) << device;
  cuda_scope_t scope;
  hal_status_t status = cuda_enter(device, &scope);
  if (status) return status;
  pthread_mutex_lock(&library->lock);
  if (library->refused & bit) status = HAL_NOT_FOUND;
  if (!status && !(library->served & bit)) {
    status = serve_device(library, device);
    *(status ? &library->refused : &library->served) |= bit;
  }
  pthread_mutex_unlock(&library->lock);
  cuda_leave(&scope);
  return status;
}

void cuda_library_forget(cuda_library_t *library, int32_t device, int lost) {
  const uint64_t bit = UINT64_C(1) << device;
  pthread_mutex_lock(&library->lock);
  const int served = (library->served & bit) != 0;
  library->served &= ~bit;
  library->refused &= ~bit;
  if (served && library->forget) library->forget(device, lost);
  pthread_mutex_unlock(&library->lock);
}

/* The library does not report whether the device was lost, but the driver does. */
hal_status_t cuda_library_submitted(const cuda_library_t *library, cuda_submit_t *submit, int code, const char *what) {
  if (CUDA_LIKELY(!code)) return cuda_submit_end(submit, CUDA_SUCCESS);
  const CUresult driver = drv.cuStreamQuery(submit->handle);
  const hal_status_t status = cuda_submit_end(submit, cuda_error_is_fatal(driver) ? driver : CUDA_ERROR_UNKNOWN);
  if (cuda_error_is_fatal(driver)) return status;
  return cuda_error(HAL_INTERNAL, code,
                    "cuda: %s refused %s, for which it had an algorithm: %s (%d); select another %s with %s",
                    library->name, what, library->code_name(code), code, library->name, library->setting);
}

hal_status_t cuda_library_no_memory(const cuda_library_t *library, const char *op, int code) {
  return cuda_error(HAL_RESOURCE_EXHAUSTED, code, "cuda: %s has no memory of its own for %s (%s, %d); free some memory",
                    library->name, op, library->code_name(code), code);
}
