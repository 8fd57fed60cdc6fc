/* What makes CUDA C++ and HIP of kernels.c. */
typedef unsigned int uint;
#define KERNEL extern "C" __global__ void
#define OUT(T) T *
#define IN(T) const T *__restrict__
#define PARAMS uint p0, uint p1, uint p2, uint p3
#define ITEM(i) uint i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= p0) return
#define SQRT sqrtf
#define EXP expf
