/*
 * A Vulkan layer that stands between the loader and a driver and lets the driver fail: what the file that FAULT_FILE
 * names says when a call comes.
 *
 *   memory   vkAllocateMemory answers VK_ERROR_OUT_OF_DEVICE_MEMORY
 *   lost     vkQueueSubmit answers VK_ERROR_DEVICE_LOST
 *   never    vkWaitForFences does not return
 *   wrong    products of floats in kernels become sums
 *   clock    no queue has timestamps
 *   dot      there are no integer dot products
 *
 * It declares the few types it needs, so that it compiles without the headers of Vulkan. Sources: the Vulkan
 * specification, and "Architecture of the Vulkan Loader Interfaces", layer interface version 2.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*Function)(void);
typedef Function (*GetProcAddr)(void *object, const char *name);

/* VkBaseInStructure */
typedef struct Chain {
    int32_t type;
    struct Chain *next;
} Chain;

/* VkLayerInstanceLink and VkLayerDeviceLink: the third member is another function in each. */
typedef struct Link {
    struct Link *next;
    GetProcAddr get_instance;
    GetProcAddr other;
} Link;

/* VkLayerInstanceCreateInfo and VkLayerDeviceCreateInfo */
typedef struct {
    int32_t type;
    void *next;
    int32_t function;
    Link *link;
} LayerInfo;

/* VkShaderModuleCreateInfo */
typedef struct {
    int32_t type;
    const void *next;
    uint32_t flags;
    size_t n_bytes;
    const uint32_t *words;
} ModuleInfo;

/* VkQueueFamilyProperties */
typedef struct {
    uint32_t flags, n_queues, n_timestamp_bits, granularity[3];
} Family;

/* VkPhysicalDeviceShaderIntegerDotProductFeatures */
typedef struct {
    int32_t type;
    void *next;
    uint32_t has_dot;
} DotFeatures;

/* VkNegotiateLayerInterface */
typedef struct {
    int32_t type;
    void *next;
    uint32_t version;
    GetProcAddr get_instance;
    GetProcAddr get_device;
    GetProcAddr get_physical;
} Negotiate;

enum {
    LOADER_INSTANCE_CREATE_INFO = 47,
    LOADER_DEVICE_CREATE_INFO = 48,
    DOT_FEATURES = 1000280000,
    LINK_INFO = 0,
    INITIALIZATION_FAILED = -3,
    OUT_OF_DEVICE_MEMORY = -2,
    OUT_OF_HOST_MEMORY = -1,
    DEVICE_LOST = -4,
    /* The specification of SPIR-V. */
    SPIRV_HEADER = 5,
    OP_FADD = 129,
    OP_FMUL = 133,
};

/* There is one driver in a worker. */
static GetProcAddr next_instance, next_device;
typedef void (*Families)(void *physical, uint32_t *n, Family *all);
/* Looked up while the instance is made: later the loader would name the first layer's. */
static Families next_families;
typedef void (*Features)(void *physical, Chain *features);
static Features next_features;

static int fault_is(const char *name) {
    char text[16] = "";
    const char *path = getenv("FAULT_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        if (!fgets(text, sizeof text, file))
            text[0] = 0;
        fclose(file);
    }
    return strcmp(text, name) == 0;
}

/* Takes this layer's link out of the chain. */
static Link *take_link(const Chain *info, int32_t type) {
    for (Chain *at = info->next; at; at = at->next) {
        LayerInfo *layer = (LayerInfo *)at;
        if (at->type == type && layer->function == LINK_INFO) {
            Link *link = layer->link;
            layer->link = link->next;
            return link;
        }
    }
    return NULL;
}

static int32_t create_instance(const Chain *info, const void *allocator, void **instance) {
    Link *link = take_link(info, LOADER_INSTANCE_CREATE_INFO);
    if (!link)
        return INITIALIZATION_FAILED;
    next_instance = link->get_instance;
    typedef int32_t (*Create)(const Chain *, const void *, void **);
    int32_t result = ((Create)next_instance(NULL, "vkCreateInstance"))(info, allocator, instance);
    if (result == 0) {
        next_families = (Families)next_instance(*instance, "vkGetPhysicalDeviceQueueFamilyProperties");
        next_features = (Features)next_instance(*instance, "vkGetPhysicalDeviceFeatures2");
    }
    return result;
}

static void features(void *physical, Chain *all) {
    next_features(physical, all);
    if (fault_is("dot"))
        for (Chain *at = all; at; at = at->next)
            if (at->type == DOT_FEATURES)
                ((DotFeatures *)at)->has_dot = 0;
}

static void families(void *physical, uint32_t *n, Family *all) {
    next_families(physical, n, all);
    if (fault_is("clock"))
        for (uint32_t i = 0; all && i < *n; i++)
            all[i].n_timestamp_bits = 0;
}

/* Looked up while a device is made, since a queue does not say which its device is; of all devices it is the same. */
typedef int32_t (*Submit)(void *queue, uint32_t n, const void *submits, uint64_t fence);
static Submit next_submit;

static int32_t create_device(void *physical, const Chain *info, const void *allocator, void **device) {
    Link *link = take_link(info, LOADER_DEVICE_CREATE_INFO);
    if (!link)
        return INITIALIZATION_FAILED;
    next_device = link->other;
    typedef int32_t (*Create)(void *, const Chain *, const void *, void **);
    Create create = (Create)link->get_instance(NULL, "vkCreateDevice");
    if (!create)
        return INITIALIZATION_FAILED;
    int32_t result = create(physical, info, allocator, device);
    if (result == 0)
        next_submit = (Submit)next_device(*device, "vkQueueSubmit");
    return result;
}

static int32_t allocate_memory(void *device, const void *info, const void *allocator, uint64_t *memory) {
    if (fault_is("memory"))
        return OUT_OF_DEVICE_MEMORY;
    typedef int32_t (*Allocate)(void *, const void *, const void *, uint64_t *);
    return ((Allocate)next_device(device, "vkAllocateMemory"))(device, info, allocator, memory);
}

static int32_t queue_submit(void *queue, uint32_t n, const void *submits, uint64_t fence) {
    if (fault_is("lost"))
        return DEVICE_LOST;
    return next_submit(queue, n, submits, fence);
}

static int32_t wait_for_fences(void *device, uint32_t n, const uint64_t *fences, uint32_t all, uint64_t timeout) {
    while (fault_is("never"))
        usleep(10000);
    typedef int32_t (*Wait)(void *, uint32_t, const uint64_t *, uint32_t, uint64_t);
    return ((Wait)next_device(device, "vkWaitForFences"))(device, n, fences, all, timeout);
}

static int32_t create_shader(void *device, const ModuleInfo *info, const void *allocator, uint64_t *module) {
    typedef int32_t (*Create)(void *, const ModuleInfo *, const void *, uint64_t *);
    Create create = (Create)next_device(device, "vkCreateShaderModule");
    if (!fault_is("wrong"))
        return create(device, info, allocator, module);
    uint32_t *words = malloc(info->n_bytes);
    if (!words)
        return OUT_OF_HOST_MEMORY;
    memcpy(words, info->words, info->n_bytes);
    size_t n_words = info->n_bytes / 4;
    for (size_t at = SPIRV_HEADER; at < n_words;) {
        uint32_t n = words[at] >> 16, opcode = words[at] & 0xffff;
        if (opcode == OP_FMUL)
            words[at] = n << 16 | OP_FADD;
        at += n ? n : 1;
    }
    ModuleInfo wrong = *info;
    wrong.words = words;
    int32_t result = create(device, &wrong, allocator, module);
    free(words);
    return result;
}

static Function own(const char *name) {
    static const struct {
        const char *name;
        Function function;
    } all[] = {
        {"vkCreateInstance", (Function)create_instance},
        {"vkCreateDevice", (Function)create_device},
        {"vkGetPhysicalDeviceQueueFamilyProperties", (Function)families},
        {"vkGetPhysicalDeviceFeatures2", (Function)features},
        {"vkAllocateMemory", (Function)allocate_memory},
        {"vkCreateShaderModule", (Function)create_shader},
        {"vkQueueSubmit", (Function)queue_submit},
        {"vkWaitForFences", (Function)wait_for_fences},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i].name) == 0)
            return all[i].function;
    return NULL;
}

static Function get_device(void *device, const char *name);

static Function get_instance(void *instance, const char *name) {
    if (strcmp(name, "vkGetInstanceProcAddr") == 0)
        return (Function)get_instance;
    if (strcmp(name, "vkGetDeviceProcAddr") == 0)
        return (Function)get_device;
    Function function = own(name);
    return function || !next_instance ? function : next_instance(instance, name);
}

static Function get_device(void *device, const char *name) {
    if (strcmp(name, "vkGetDeviceProcAddr") == 0)
        return (Function)get_device;
    Function function = own(name);
    return function || !next_device ? function : next_device(device, name);
}

int32_t vkNegotiateLoaderLayerInterfaceVersion(Negotiate *with) {
    if (with->version < 2)
        return INITIALIZATION_FAILED;
    with->version = 2;
    with->get_instance = get_instance;
    with->get_device = get_device;
    with->get_physical = NULL;
    return 0;
}
