/* kernel_text.h: the texts of the suite's kernels. hal-pack compiles them into each pack, so that the suite has kernels
 * in the dialect of the pack. */
#ifndef HAL_CTS_KERNEL_TEXT_H_
#define HAL_CTS_KERNEL_TEXT_H_

/* A text dialect: its kernels, the one that computes in double precision, and a text that does not compile. */
typedef struct cts_language_s {
  const char *dialect, *source, *doubles, *wrong;
} cts_language_t;

/* "opencl-c", "cuda-c"; a dialect of NULL ends the list. */
extern const cts_language_t cts_languages[];

/* The names of the modules in packs; they are compiled without options. */
#define CTS_PACKED "hal_cts"
#define CTS_PACKED_DOUBLES "hal_cts_f64_doubles"

#endif /* HAL_CTS_KERNEL_TEXT_H_ */
