/*
 * A stand-in for the drivers of NVIDIA (-DNAME(x)=cu##x) and AMD (hip##x): it runs kernels.c on the CPU. It shows that
 * our calls come in the right order with the right arguments, and lets a driver misbehave: FAKE_DRIVER says how.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int uint;
typedef struct { uint x, y, z, w; } uint4;

static uint item;
#define KERNEL static void
#define OUT(T) T *
#define IN(T) const T *restrict
#define PARAMS uint p0, uint p1, uint p2, uint p3
#define ITEM(i) uint i = item; if (i >= p0) return
#define SQRT sqrtf
#define EXP expf
#include "../kernels/kernels.c"

#ifdef HIP
#define NAME(nvidia, amd) hip##amd
#else
#define NAME(nvidia, amd) cu##nvidia
#endif

struct kernel { const char *name; int n_buffers; void *code; };
static struct kernel kernels[] = {
    {"saxpy", 3, saxpy}, {"sum", 2, sum}, {"matmul", 3, matmul}, {"blur", 2, blur}, {"fma_chain", 3, fma_chain},
    {"copy", 2, copy}, {"place", 2, place}, {"matvec_q8", 4, matvec_q8}, {"rms_norm", 2, rms_norm},
    {"attend", 4, attend}, {"swiglu", 3, swiglu}, {"add", 3, add},
};

static int is(const char *fault) {
    const char *wanted = getenv("FAKE_DRIVER");
    return wanted && !strcmp(wanted, fault);
}

static int ready, loaded;
enum { INVALID = 1, NOT_READY = 3, NO_DEVICE = 100, NOT_FOUND = 500 };

int NAME(Init, Init)(uint flags) {
    if (flags) return INVALID;
    if (is("none")) return NO_DEVICE;
    ready = 1;
    return 0;
}
int NAME(DeviceGetCount, GetDeviceCount)(int *count) { *count = 1; return ready ? 0 : NOT_READY; }
int NAME(DeviceGet, DeviceGet)(int *device, int index) { *device = 40 + index; return index ? INVALID : 0; }
int NAME(DeviceGetName, DeviceGetName)(char *name, int room, int device) {
    if (device != 40 || room < 32) return INVALID;
    strcpy(name, "Stand-in");
    return 0;
}
int NAME(DeviceTotalMem_v2, DeviceTotalMem)(size_t *bytes, int device) {
    *bytes = 1u << 30;
    return device == 40 ? 0 : INVALID;
}
int NAME(DriverGetVersion, DriverGetVersion)(int *version) { *version = 12040; return 0; }
int NAME(DevicePrimaryCtxRetain, DevicePrimaryCtxRetain)(void **context, int device) {
    *context = &ready;
    return device == 40 && ready ? 0 : INVALID;
}
int NAME(CtxSetCurrent, CtxSetCurrent)(void *context) { return context == &ready ? 0 : INVALID; }
int NAME(ModuleLoadData, ModuleLoadData)(void **module, const char *image) {
#ifndef HIP
    if (!strstr(image, ".visible .entry saxpy(")) return INVALID;
#else
    if (strcmp(image, "code")) return INVALID;
#endif
    loaded = 1;
    *module = &loaded;
    return 0;
}
int NAME(ModuleGetFunction, ModuleGetFunction)(void **function, void *module, const char *name) {
    if (module != &loaded) return INVALID;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].name, name)) { *function = &kernels[i]; return 0; }
    return NOT_FOUND;
}
int NAME(MemAlloc_v2, Malloc)(void **at, size_t bytes) { *at = malloc(bytes); return *at ? 0 : 2; }
int NAME(MemFree_v2, Free)(void *at) { free(at); return 0; }
int NAME(MemcpyHtoD_v2, MemcpyHtoD)(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int NAME(MemcpyDtoH_v2, MemcpyDtoH)(void *to, void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int NAME(CtxSynchronize, DeviceSynchronize)(void) { return 0; }
int NAME(GetErrorName, DrvGetErrorName)(int error, const char **name) { *name = "FAKE_ERROR"; return error ? 0 : INVALID; }
int NAME(LaunchKernel, ModuleLaunchKernel)(struct kernel *kernel, uint gx, uint gy, uint gz, uint bx, uint by, uint bz,
                                           uint shared, void *stream, void **a, void **extra) {
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || stream || extra) return INVALID;
    int n = kernel->n_buffers;
    void *b[4] = {0};
    uint p[4];
    for (int i = 0; i < n; i++) b[i] = *(void **)a[i];
    for (int i = 0; i < 4; i++) p[i] = *(uint *)a[n + i];
    if (is("crash") && !strcmp(kernel->name, "saxpy")) *(volatile int *)8 = 0;
    if (is("hang") && !strcmp(kernel->name, "saxpy")) for (;;) pause();
    if (is("error") && !strcmp(kernel->name, "saxpy")) return 700;
    for (item = 0; item < gx * bx; item++) {
        if (n == 2) ((void (*)(void *, void *, uint, uint, uint, uint))kernel->code)(b[0], b[1], p[0], p[1], p[2], p[3]);
        if (n == 3) ((void (*)(void *, void *, void *, uint, uint, uint, uint))kernel->code)(b[0], b[1], b[2], p[0], p[1], p[2], p[3]);
        if (n == 4) ((void (*)(void *, void *, void *, void *, uint, uint, uint, uint))kernel->code)(b[0], b[1], b[2], b[3], p[0], p[1], p[2], p[3]);
    }
    if (is("wrong") && !strcmp(kernel->name, "saxpy")) ((float *)b[0])[7] += 1.0f;
    return 0;
}

#ifdef HIP
/* The compiler of HIP, which is a library of its own. */
int hiprtcCreateProgram(void **program, const char *source, const char *name, int n, const char **headers, const char **names) {
    *program = &loaded;
    return strstr(source, "KERNEL saxpy(") && name && !n && !headers && !names ? 0 : INVALID;
}
int hiprtcCompileProgram(void *program, int n, const char **options) { return program == &loaded && !n && !options ? 0 : INVALID; }
int hiprtcGetProgramLogSize(void *program, size_t *bytes) { *bytes = 0; return program != &loaded; }
int hiprtcGetProgramLog(void *program, char *log) { *log = 0; return program != &loaded; }
int hiprtcGetCodeSize(void *program, size_t *bytes) { *bytes = 5; return program != &loaded; }
int hiprtcGetCode(void *program, char *code) { memcpy(code, "code", 5); return program != &loaded; }
#endif
