/* house.h: what this room gives the house. Private to hal/src. */
#ifndef HAL_SRC_PROGRAM_HOUSE_H_
#define HAL_SRC_PROGRAM_HOUSE_H_

typedef struct hal_fuse_s hal_fuse_t;
typedef struct hal_programs_s hal_programs_t;

/* Frees the groups of a device that does no more work; NULL is allowed. */
void hal_fuse_destroy(hal_fuse_t *fuse);

/* The thread that compiles stayed in the parent. */
void hal_fuse_worker_after_fork(void);

/* Destroys the compiler's programs of a device that does no more work; NULL is allowed. */
void hal_compiler_destroy(hal_programs_t *programs);

#endif /* HAL_SRC_PROGRAM_HOUSE_H_ */
