/* libnvidia-ml.so.1 of the simulated driver: NVML's names, types and codes over the node's state. What is not here is not there:
 * a caller gets "function not found", as from an older driver. */
#define _GNU_SOURCE
#include "lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

typedef struct lab_handle { unsigned index; } *nvmlDevice_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; } nvmlPciInfo_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long reference, violation; } nvmlViolationTime_t;
typedef struct { unsigned version, sensor; int celsius; } nvmlTemperature_t;
typedef struct { unsigned pid; unsigned long long memory; } process_v1;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } process_v2;
typedef union { double d; unsigned ui; unsigned long ul; unsigned long long ull; signed long long sll; } nvmlValue_t;
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type;
    int code;
    nvmlValue_t value;
} nvmlFieldValue_t;

#define EXPORT __attribute__((visibility("default"))) int
#define MEMORY_V2 0x02000028u
#define TEMPERATURE_V1 0x100000Cu
enum { TYPE_UINT = 1, TYPE_ULL = 3 };

static struct lab_handle handles[LAB_CARDS];
static int started;

static int look(struct lab_node *node) { return started ? lab_look(node) : UNINITIALIZED; }

/* The card of a handle, in a fresh copy of the state. */
static int find(nvmlDevice_t handle, struct lab_node *node, struct lab_card **card)
{
    if (!handle || handle < handles || handle >= handles + LAB_CARDS)
        return INVALID_ARGUMENT;
    int code = look(node);
    if (code == OK && handle->index >= node->cards)
        code = INVALID_ARGUMENT;
    if (code == OK)
        *card = &node->card[handle->index];
    return code;
}

#define CARD(handle)                                                                                                                       \
    struct lab_node node;                                                                                                                  \
    struct lab_card *card = NULL;                                                                                                          \
    int code = find(handle, &node, &card);                                                                                                 \
    if (code != OK)                                                                                                                        \
        return code;

static int text(const char *from, char *to, unsigned size)
{
    if (!to || strlen(from) + 1 > size)
        return to ? INSUFFICIENT_SIZE : INVALID_ARGUMENT;
    strcpy(to, from);
    return OK;
}

EXPORT nvmlInitWithFlags(unsigned flags)
{
    struct lab_node node;
    (void)flags;
    int code = lab_look(&node);
    if (code == OK)
        started++;
    return code;
}

EXPORT nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlShutdown(void)
{
    if (!started)
        return UNINITIALIZED;
    started--;
    return OK;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code) { return lab_words(code); }

EXPORT nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    struct lab_node node;
    int code = look(&node);
    return code == OK ? text(node.driver, version, size) : code;
}

EXPORT nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    struct lab_node node;
    int code = look(&node);
    char whole[64];
    if (code != OK)
        return code;
    snprintf(whole, sizeof whole, "%u.%s", node.cuda_version / 1000, node.library);
    return text(whole, version, size);
}

EXPORT nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    struct lab_node node;
    int code = look(&node);
    if (code == OK)
        *version = (int)node.cuda_version;
    return code;
}

EXPORT nvmlDeviceGetCount_v2(unsigned *count)
{
    struct lab_node node;
    int code = look(&node);
    if (code == OK)
        *count = node.cards;
    return code;
}

static int give_handle(const struct lab_node *node, unsigned index, nvmlDevice_t *handle)
{
    if (node->card[index].faults & CARD_LOST)
        return GPU_IS_LOST;
    handles[index].index = index;
    *handle = &handles[index];
    return OK;
}

EXPORT nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle)
{
    struct lab_node node;
    int code = look(&node);
    if (code != OK)
        return code;
    return index < node.cards ? give_handle(&node, index, handle) : INVALID_ARGUMENT;
}

EXPORT nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    struct lab_node node;
    int code = look(&node);
    for (unsigned i = 0; code == OK && i < node.cards; i++)
        if (!strcmp(node.card[i].uuid, uuid))
            return give_handle(&node, i, handle);
    return code == OK ? NOT_FOUND : code;
}

EXPORT nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *handle)
{
    struct lab_node node;
    int code = look(&node);
    unsigned domain = 0, number = 0, device = 0, function = 0;
    if (sscanf(bus, "%x:%x:%x.%x", &domain, &number, &device, &function) != 4) {
        domain = 0;
        if (sscanf(bus, "%x:%x.%x", &number, &device, &function) != 3)
            return INVALID_ARGUMENT;
    }
    for (unsigned i = 0; code == OK && i < node.cards; i++)
        if (node.card[i].domain == domain && node.card[i].bus == number && node.card[i].device == device)
            return give_handle(&node, i, handle);
    return code == OK ? NOT_FOUND : code;
}

EXPORT nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned size) { CARD(handle) return text(card->name, name, size); }
EXPORT nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned size) { CARD(handle) return text(card->uuid, uuid, size); }
EXPORT nvmlDeviceGetVbiosVersion(nvmlDevice_t handle, char *version, unsigned size) { CARD(handle) return text(card->vbios, version, size); }
EXPORT nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index) { CARD(handle) (void)card; *index = handle->index; return OK; }
EXPORT nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned *minor) { CARD(handle) (void)card; *minor = handle->index; return OK; }
EXPORT nvmlDeviceGetPowerManagementLimit(nvmlDevice_t handle, unsigned *out) { CARD(handle) return lab_limit(card, out); }
EXPORT nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t handle, unsigned *out) { CARD(handle) return lab_default(card, out); }
EXPORT nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t handle, unsigned *out) { CARD(handle) return lab_enforced(card, out); }
EXPORT nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned *out) { CARD(handle) return lab_power(card, out); }
EXPORT nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t handle, unsigned long long *out) { CARD(handle) return lab_energy(card, out); }
EXPORT nvmlDeviceGetFanSpeed(nvmlDevice_t handle, unsigned *out) { CARD(handle) return lab_fan(card, out); }

EXPORT nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t handle, unsigned *least, unsigned *most)
{
    CARD(handle)
    code = lab_least(card, least);
    return code == OK ? lab_most(card, most) : code;
}

EXPORT nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *info)
{
    CARD(handle)
    memset(info, 0, sizeof *info);
    snprintf(info->legacy, sizeof info->legacy, "%04X:%02X:%02X.0", card->domain & 0xffff, card->bus & 0xff, card->device & 0xff);
    snprintf(info->bus_id, sizeof info->bus_id, "%.31s", card->bus_id);
    info->domain = card->domain;
    info->bus = card->bus;
    info->device = card->device;
    info->device_id = card->device_id;
    info->subsystem_id = card->subsystem_id;
    return OK;
}

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO };

EXPORT nvmlDeviceGetClockInfo(nvmlDevice_t handle, unsigned type, unsigned *mhz)
{
    CARD(handle)
    if (type > CLOCK_VIDEO)
        return INVALID_ARGUMENT;
    return type == CLOCK_MEMORY ? lab_memory_clock(card, mhz) : type == CLOCK_VIDEO ? NOT_SUPPORTED : lab_sm(card, mhz);
}

EXPORT nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, unsigned type, unsigned *mhz)
{
    CARD(handle)
    if (type > CLOCK_VIDEO)
        return INVALID_ARGUMENT;
    return type == CLOCK_MEMORY ? lab_memory_max(card, mhz) : type == CLOCK_VIDEO ? NOT_SUPPORTED : lab_sm_max(card, mhz);
}

EXPORT nvmlDeviceGetPerformanceState(nvmlDevice_t handle, unsigned *pstate)
{
    CARD(handle)
    code = lab_alive(card);
    if (code == OK)
        *pstate = card->pstate;
    return code;
}

EXPORT nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *out)
{
    CARD(handle)
    return lab_utilization(card, &out->gpu, &out->memory);
}

EXPORT nvmlDeviceGetTemperature(nvmlDevice_t handle, unsigned sensor, unsigned *celsius)
{
    CARD(handle)
    return sensor ? INVALID_ARGUMENT : lab_temperature(card, celsius);
}

EXPORT nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_t *out)
{
    CARD(handle)
    if (out->version != TEMPERATURE_V1)
        return VERSION_MISMATCH;
    return out->sensor ? INVALID_ARGUMENT : lab_temperature(card, (unsigned *)&out->celsius);
}

enum { THRESHOLD_ACOUSTIC_MIN = 4, THRESHOLD_ACOUSTIC_CURR, THRESHOLD_ACOUSTIC_MAX };

EXPORT nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, unsigned which, unsigned *celsius)
{
    CARD(handle)
    code = lab_target(card, celsius);
    if (code != OK)
        return code;
    if (which < THRESHOLD_ACOUSTIC_MIN || which > THRESHOLD_ACOUSTIC_MAX)
        return NOT_SUPPORTED;
    *celsius = which == THRESHOLD_ACOUSTIC_MIN ? card->target_min_c : which == THRESHOLD_ACOUSTIC_MAX ? card->target_max_c : card->target_c;
    return OK;
}

EXPORT nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *out)
{
    CARD(handle)
    code = lab_used(card, &out->used);
    if (code == OK) {
        out->used += card->memory_reserved;
        out->total = card->memory_total;
        out->free = out->total > out->used ? out->total - out->used : 0;
    }
    return code;
}

EXPORT nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *out)
{
    CARD(handle)
    if (out->version != MEMORY_V2)
        return VERSION_MISMATCH;
    code = lab_used(card, &out->used);
    if (code == OK) {
        out->reserved = card->memory_reserved;
        out->total = card->memory_total;
        out->free = out->total > out->used + out->reserved ? out->total - out->used - out->reserved : 0;
    }
    return code;
}

EXPORT nvmlDeviceGetPersistenceMode(nvmlDevice_t handle, unsigned *mode)
{
    CARD(handle)
    code = lab_alive(card);
    if (code == OK)
        *mode = card->persistence;
    return code;
}

EXPORT nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
    CARD(handle)
    code = lab_alive(card);
    if (code == OK && !(card->can & CAN_MIG))
        code = NOT_SUPPORTED;
    if (code == OK)
        *current = *pending = 0;
    return code;
}

static int reasons(nvmlDevice_t handle, unsigned long long *out)
{
    CARD(handle)
    code = lab_alive(card);
    if (code == OK)
        *out = card->reasons;
    return code;
}

EXPORT nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t handle, unsigned long long *out) { return reasons(handle, out); }

EXPORT nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t handle, unsigned long long *out)
{
    CARD(handle)
    return lab_branch(&node) < 535 ? FUNCTION_NOT_FOUND : reasons(handle, out);
}

static int supported(nvmlDevice_t handle, unsigned long long *out)
{
    CARD(handle)
    *out = 0x1ff;
    return lab_alive(card);
}

EXPORT nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t handle, unsigned long long *out) { return supported(handle, out); }

EXPORT nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t handle, unsigned long long *out)
{
    CARD(handle)
    return lab_branch(&node) < 535 ? FUNCTION_NOT_FOUND : supported(handle, out);
}

enum { POLICY_POWER, POLICY_THERMAL, POLICY_SYNC_BOOST, POLICY_BOARD, POLICY_MOST = 11 };

EXPORT nvmlDeviceGetViolationStatus(nvmlDevice_t handle, unsigned policy, nvmlViolationTime_t *out)
{
    CARD(handle)
    struct timespec now;
    code = lab_alive(card);
    if (code != OK)
        return code;
    if (policy > POLICY_MOST)
        return INVALID_ARGUMENT;
    clock_gettime(CLOCK_REALTIME, &now);
    out->reference = (unsigned long long)now.tv_sec * 1000000ull + (unsigned long long)now.tv_nsec / 1000ull;
    out->violation = policy == POLICY_POWER ? card->power_violation_ns
                   : policy == POLICY_THERMAL ? card->thermal_violation_ns
                   : policy == POLICY_BOARD ? card->board_violation_ns : 0;
    return OK;
}

static int processes(nvmlDevice_t handle, unsigned graphics, unsigned *count, void *out, int long_form)
{
    CARD(handle)
    unsigned found = 0, room = *count;
    code = lab_alive(card);
    for (unsigned i = 0; code == OK && i < card->holders && i < LAB_HOLDERS; i++) {
        const struct lab_holder *one = &card->holder[i];
        if (one->graphics != graphics)
            continue;
        if (out && found < room) {
            if (long_form)
                ((process_v2 *)out)[found] = (process_v2){one->pid, one->memory, ~0u, ~0u};
            else
                ((process_v1 *)out)[found] = (process_v1){one->pid, one->memory};
        }
        found++;
    }
    *count = found;
    return code == OK && found > (out ? room : 0) ? INSUFFICIENT_SIZE : code;
}

EXPORT nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned *count, void *out) { return processes(handle, 0, count, out, 0); }
EXPORT nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned *count, void *out) { return processes(handle, 0, count, out, 1); }
EXPORT nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count, void *out) { return processes(handle, 0, count, out, 1); }
EXPORT nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t handle, unsigned *count, void *out) { return processes(handle, 1, count, out, 0); }
EXPORT nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t handle, unsigned *count, void *out) { return processes(handle, 1, count, out, 1); }
EXPORT nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned *count, void *out) { return processes(handle, 1, count, out, 1); }

EXPORT nvmlDeviceGetArchitecture(nvmlDevice_t handle, unsigned *architecture)
{
    CARD(handle)
    *architecture = card->architecture;
    return lab_alive(card);
}

EXPORT nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor)
{
    CARD(handle)
    *major = (int)card->cc_major;
    *minor = (int)card->cc_minor;
    return lab_alive(card);
}

enum { FIELD_ENERGY = 83, FIELD_AVERAGE = 185, FIELD_INSTANT, FIELD_LEAST, FIELD_MOST, FIELD_DEFAULT, FIELD_CURRENT, FIELD_MEMORY, FIELD_REQUESTED };

static int field(const struct lab_node *node, const struct lab_card *card, nvmlFieldValue_t *one)
{
    one->type = TYPE_UINT;
    if (one->field == FIELD_ENERGY) {
        one->type = TYPE_ULL;
        return lab_energy(card, &one->value.ull);
    }
    /* The second scope is the module's, which only Grace boards have, the third the memory's. */
    if (lab_branch(node) < 530 || one->scope > 0)
        return lab_branch(node) < 530 ? INVALID_ARGUMENT : NOT_SUPPORTED;
    switch (one->field) {
    case FIELD_AVERAGE: return lab_average(node, card, &one->value.ui);
    case FIELD_INSTANT: return lab_instant(node, card, &one->value.ui);
    case FIELD_LEAST: return lab_least(card, &one->value.ui);
    case FIELD_MOST: return lab_most(card, &one->value.ui);
    case FIELD_DEFAULT: return lab_default(card, &one->value.ui);
    case FIELD_CURRENT: return lab_enforced(card, &one->value.ui);
    case FIELD_REQUESTED: return lab_limit(card, &one->value.ui);
    default: return NOT_SUPPORTED;
    }
}

EXPORT nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *values)
{
    CARD(handle)
    for (int i = 0; i < count; i++)
        values[i].code = field(&node, card, &values[i]);
    return OK;
}
