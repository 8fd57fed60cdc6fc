/* What makes OpenCL C of kernels.c. */
#define KERNEL __kernel void
#define OUT(T) __global T *
#define IN(T) __global const T *restrict
#define PARAMS uint p0, uint p1, uint p2, uint p3
#define ITEM(i) uint i = (uint)get_global_id(0); if (i >= p0) return
#define SQRT sqrt
#define EXP exp
