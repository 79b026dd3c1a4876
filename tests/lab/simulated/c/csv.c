/* --query-gpu and --query-compute-apps: real field names, units in the header, and what is printed where there is no number. */
#define _GNU_SOURCE
#include "smi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { MOST_FIELDS = 256, DEPRECATED_FROM = 590, EVENTS_FROM = 535, COUNTERS_FROM = 550 };

struct format { int header, units; };
typedef void (*printer)(const struct smi *, const struct lab_card *, char *cell, size_t size);

/* `unit` goes into the header and behind the number; `since` is the first driver branch that knows the name. */
struct field { const char *name, *alias, *unit; unsigned since; printer print; };

const char *smi_cell(const struct smi *smi, int code)
{
    switch (code) {
    case NOT_SUPPORTED: return lab_branch(&smi->node) < 465 ? "[Not Supported]" : "[N/A]";
    case NO_PERMISSION: return "[Insufficient Permissions]";
    case RESET_REQUIRED: return "[GPU requires reset]";
    case GPU_IS_LOST: return "[GPU is lost]";
    case DEPRECATED: return "[Requested functionality has been deprecated]";
    default: return "[Unknown Error]";
    }
}

static void cell_of(const struct smi *smi, int code, char *cell, size_t size, const char *form, double value)
{
    if (code == OK)
        snprintf(cell, size, form, value);
    else
        snprintf(cell, size, "%s", smi_cell(smi, code));
}

#define CELL(name) static void name(const struct smi *smi, const struct lab_card *card, char *cell, size_t size)
#define WATTS(name, reading)                                                                                                               \
    CELL(name)                                                                                                                             \
    {                                                                                                                                      \
        unsigned value = 0;                                                                                                                \
        int code = reading;                                                                                                                \
        cell_of(smi, code, cell, size, "%.2f", value / 1000.0);                                                                            \
    }
#define NUMBER(name, reading)                                                                                                              \
    CELL(name)                                                                                                                             \
    {                                                                                                                                      \
        unsigned value = 0;                                                                                                                \
        int code = reading;                                                                                                                \
        cell_of(smi, code, cell, size, "%.0f", value);                                                                                     \
    }
#define TEXT(name, form, ...)                                                                                                              \
    CELL(name) { (void)smi; (void)card; snprintf(cell, size, form, __VA_ARGS__); }
#define IDENTITY(name, value)                                                                                                              \
    CELL(name)                                                                                                                             \
    {                                                                                                                                      \
        if (value)                                                                                                                         \
            snprintf(cell, size, "0x%08X", value);                                                                                         \
        else                                                                                                                               \
            snprintf(cell, size, "%s", smi_cell(smi, NOT_SUPPORTED));                                                                      \
    }
#define MEBIBYTES(name, expression)                                                                                                        \
    CELL(name)                                                                                                                             \
    {                                                                                                                                      \
        unsigned long long used = 0;                                                                                                       \
        int code = lab_used(card, &used);                                                                                                  \
        cell_of(smi, code, cell, size, "%.0f", (double)((expression) >> 20));                                                              \
    }
#define REASON(name, bit)                                                                                                                  \
    CELL(name) { snprintf(cell, size, "%s", lab_alive(card) != OK ? smi_cell(smi, lab_alive(card)) : card->reasons & (bit) ? "Active" : "Not Active"); }
#define ABSENT(name) CELL(name) { (void)card; snprintf(cell, size, "%s", smi_cell(smi, NOT_SUPPORTED)); }

WATTS(power_draw, lab_power(card, &value))
WATTS(power_average, lab_average(&smi->node, card, &value))
WATTS(power_instant, lab_instant(&smi->node, card, &value))
WATTS(power_limit, lab_limit(card, &value))
WATTS(power_enforced, lab_enforced(card, &value))
WATTS(power_default, lab_default(card, &value))
WATTS(power_least, lab_least(card, &value))
WATTS(power_most, lab_most(card, &value))
NUMBER(clock_sm, lab_sm(card, &value))
NUMBER(clock_memory, lab_memory_clock(card, &value))
NUMBER(clock_sm_max, lab_sm_max(card, &value))
NUMBER(clock_memory_max, lab_memory_max(card, &value))
NUMBER(fan, lab_fan(card, &value))
NUMBER(temperature, lab_temperature(card, &value))
MEBIBYTES(memory_total, card->memory_total)
MEBIBYTES(memory_used, used)
MEBIBYTES(memory_reserved, card->memory_reserved)
MEBIBYTES(memory_free, card->memory_total - used - card->memory_reserved)
TEXT(name, "%s", card->name)
TEXT(uuid, "%s", card->uuid)
TEXT(bus_id, "%s", card->bus_id)
TEXT(vbios, "%s", card->vbios)
TEXT(driver, "%s", smi->node.driver)
TEXT(card_count, "%u", smi->node.cards)
TEXT(domain, "0x%04X", card->domain)
TEXT(bus, "0x%02X", card->bus)
TEXT(device, "0x%02X", card->device)
IDENTITY(device_id, card->device_id)
IDENTITY(sub_device_id, card->subsystem_id)
TEXT(persistence, "%s", card->persistence ? "Enabled" : "Disabled")
TEXT(compute_cap, "%u.%u", card->cc_major, card->cc_minor)
TEXT(card_index, "%u", (unsigned)(card - smi->node.card))
TEXT(compute_mode, "%s", "Default")
TEXT(mig, "%s", card->can & CAN_MIG ? "Disabled" : "[N/A]")
TEXT(ecc, "%s", card->can & CAN_ECC ? "Enabled" : "[N/A]")
TEXT(power_management, "%s", lab_branch(&smi->node) >= DEPRECATED_FROM ? smi_cell(smi, DEPRECATED) : "Enabled")
TEXT(recovery, "%s", card->faults & CARD_RESET ? "Reset" : "None")
TEXT(reasons_supported, "0x%016llX", 0x1ffull)
TEXT(reasons_active, "0x%016" PRIX64, card->reasons)
TEXT(power_counter, "%" PRIu64, card->power_violation_ns / 1000)
TEXT(thermal_counter, "%" PRIu64, card->thermal_violation_ns / 1000)
TEXT(no_counter, "%d", 0)
REASON(reason_idle, REASON_IDLE)
REASON(reason_power, REASON_POWER_CAP)
REASON(reason_thermal, REASON_THERMAL)
REASON(reason_never, 0)
ABSENT(absent)

CELL(pstate)
{
    int code = card->faults & CARD_NVGPU ? NOT_SUPPORTED : lab_alive(card);
    if (code == OK)
        snprintf(cell, size, "P%u", card->pstate);
    else
        snprintf(cell, size, "%s", smi_cell(smi, code));
}

/* The one column that prints its N/A without brackets. */
CELL(temperature_memory)
{
    unsigned value = 0;
    int code = lab_memory_temperature(card, &value);
    if (code == NOT_SUPPORTED)
        snprintf(cell, size, "N/A");
    else
        cell_of(smi, code, cell, size, "%.0f", value);
}

CELL(utilization_gpu)
{
    unsigned gpu = 0, memory = 0;
    int code = lab_utilization(card, &gpu, &memory);
    cell_of(smi, code, cell, size, "%.0f", gpu);
}

CELL(utilization_memory)
{
    unsigned gpu = 0, memory = 0;
    int code = lab_utilization(card, &gpu, &memory);
    cell_of(smi, code, cell, size, "%.0f", memory);
}

CELL(application_clock)
{
    (void)card;
    snprintf(cell, size, "%s", smi_cell(smi, lab_branch(&smi->node) >= DEPRECATED_FROM ? DEPRECATED : NOT_SUPPORTED));
}

CELL(timestamp)
{
    struct timeval now;
    char date[32];
    (void)smi, (void)card;
    gettimeofday(&now, NULL);
    strftime(date, sizeof date, "%Y/%m/%d %H:%M:%S", localtime(&now.tv_sec));
    snprintf(cell, size, "%s.%03ld", date, (long)now.tv_usec / 1000);
}

#define EVENT(suffix, since, unit, print) {"clocks_event_reasons" suffix, "clocks_throttle_reasons" suffix, unit, since, print}
static const struct field FIELDS[] = {
    {"timestamp", NULL, NULL, 0, timestamp}, {"driver_version", NULL, NULL, 0, driver}, {"count", NULL, NULL, 0, card_count},
    {"name", "gpu_name", NULL, 0, name}, {"serial", "gpu_serial", NULL, 0, absent}, {"uuid", "gpu_uuid", NULL, 0, uuid},
    {"index", NULL, NULL, 0, card_index}, {"vbios_version", NULL, NULL, 0, vbios}, {"compute_cap", NULL, NULL, 510, compute_cap},
    {"pci.bus_id", "gpu_bus_id", NULL, 0, bus_id}, {"pci.domain", NULL, NULL, 0, domain}, {"pci.bus", NULL, NULL, 0, bus},
    {"pci.device", NULL, NULL, 0, device}, {"pci.device_id", NULL, NULL, 0, device_id}, {"pci.sub_device_id", NULL, NULL, 0, sub_device_id},
    {"pcie.link.gen.max", NULL, NULL, 0, absent}, {"pcie.link.width.max", NULL, NULL, 0, absent}, {"display_active", NULL, NULL, 0, absent},
    {"persistence_mode", NULL, NULL, 0, persistence}, {"pstate", NULL, NULL, 0, pstate}, {"compute_mode", NULL, NULL, 0, compute_mode},
    {"memory.total", NULL, "MiB", 0, memory_total}, {"memory.used", NULL, "MiB", 0, memory_used}, {"memory.free", NULL, "MiB", 0, memory_free},
    {"memory.reserved", NULL, "MiB", 510, memory_reserved}, {"utilization.gpu", NULL, "%", 0, utilization_gpu},
    {"utilization.memory", NULL, "%", 0, utilization_memory}, {"temperature.gpu", NULL, NULL, 0, temperature},
    {"temperature.memory", NULL, NULL, 0, temperature_memory}, {"temperature.gpu.tlimit", NULL, NULL, 550, absent}, {"fan.speed", NULL, "%", 0, fan},
    {"power.management", NULL, NULL, 0, power_management}, {"power.draw", NULL, "W", 0, power_draw},
    {"power.draw.average", NULL, "W", 530, power_average}, {"power.draw.instant", NULL, "W", 530, power_instant},
    {"power.limit", NULL, "W", 0, power_limit}, {"enforced.power.limit", NULL, "W", 0, power_enforced},
    {"power.default_limit", NULL, "W", 0, power_default}, {"power.min_limit", NULL, "W", 0, power_least}, {"power.max_limit", NULL, "W", 0, power_most},
    {"module.power.draw.average", NULL, "W", 550, absent}, {"module.power.draw.instant", NULL, "W", 550, absent}, {"module.power.limit", NULL, "W", 550, absent},
    {"clocks.current.graphics", "clocks.gr", "MHz", 0, clock_sm}, {"clocks.current.sm", "clocks.sm", "MHz", 0, clock_sm},
    {"clocks.current.memory", "clocks.mem", "MHz", 0, clock_memory}, {"clocks.current.video", "clocks.video", "MHz", 0, absent},
    {"clocks.max.graphics", "clocks.max.gr", "MHz", 0, clock_sm_max}, {"clocks.max.sm", NULL, "MHz", 0, clock_sm_max},
    {"clocks.max.memory", "clocks.max.mem", "MHz", 0, clock_memory_max}, {"clocks.applications.graphics", "clocks.applications.gr", "MHz", 0, application_clock},
    {"clocks.applications.memory", "clocks.applications.mem", "MHz", 0, application_clock},
    {"clocks.default_applications.graphics", "clocks.default_applications.gr", "MHz", 0, application_clock},
    {"clocks.default_applications.memory", "clocks.default_applications.mem", "MHz", 0, application_clock},
    {"ecc.mode.current", NULL, NULL, 0, ecc}, {"mig.mode.current", NULL, NULL, 450, mig}, {"gpu_recovery_action", NULL, NULL, 565, recovery},
    EVENT(".supported", 0, NULL, reasons_supported), EVENT(".active", 0, NULL, reasons_active), EVENT(".gpu_idle", 0, NULL, reason_idle),
    EVENT(".applications_clocks_setting", 0, NULL, reason_never), EVENT(".sw_power_cap", 0, NULL, reason_power), EVENT(".hw_slowdown", 0, NULL, reason_never),
    EVENT(".hw_thermal_slowdown", 0, NULL, reason_never), EVENT(".hw_power_brake_slowdown", 0, NULL, reason_never),
    EVENT(".sw_thermal_slowdown", 0, NULL, reason_thermal), EVENT(".sync_boost", 0, NULL, reason_never),
    EVENT("_counters.sw_power_cap", COUNTERS_FROM, "us", power_counter), EVENT("_counters.sw_thermal_slowdown", COUNTERS_FROM, "us", thermal_counter),
    EVENT("_counters.hw_thermal_slowdown", COUNTERS_FROM, "us", no_counter), EVENT("_counters.hw_power_brake_slowdown", COUNTERS_FROM, "us", no_counter),
    EVENT("_counters.sync_boost", COUNTERS_FROM, "us", no_counter),
};
enum { FIELD_COUNT = sizeof FIELDS / sizeof *FIELDS };

static const struct field *find(const struct smi *smi, const char *wanted)
{
    unsigned branch = lab_branch(&smi->node);
    for (unsigned i = 0; i < FIELD_COUNT; i++) {
        const struct field *one = &FIELDS[i];
        int is_event = !strncmp(one->name, "clocks_event", strlen("clocks_event"));
        if (branch < one->since)
            continue;
        if ((!strcmp(one->name, wanted) && !(is_event && branch < EVENTS_FROM)) || (one->alias && !strcmp(one->alias, wanted)))
            return one;
    }
    return NULL;
}

/* Before 535 the event reasons were called throttle reasons, in the header too. */
static const char *title(const struct smi *smi, const struct field *one)
{
    int is_event = !strncmp(one->name, "clocks_event", strlen("clocks_event"));
    return is_event && lab_branch(&smi->node) < EVENTS_FROM ? one->alias : one->name;
}

static int read_format(const char *text, struct format *format)
{
    *format = (struct format){1, 1};
    if (!text || strncmp(text, "csv", 3)) {
        puts("--format= must be given with csv: see nvidia-smi --help-query-gpu for help.");
        return INVALID_ARGUMENT;
    }
    format->header = !strstr(text, "noheader");
    format->units = !strstr(text, "nounits");
    return OK;
}

static void print_title(const char *name, const char *unit, int last) { unit ? printf("%s [%s]", name, unit) : printf("%s", name); fputs(last ? "\n" : ", ", stdout); }

static void print_cell(const char *cell, const char *unit, struct format format, int last)
{
    int number = unit && cell[0] != '[' && strcmp(cell, "N/A") != 0;
    printf(number && format.units ? "%s %s" : "%s", cell, unit);
    fputs(last ? "\n" : ", ", stdout);
}

int smi_query_gpu(const struct smi *smi, char *fields, const char *form)
{
    const struct field *asked[MOST_FIELDS];
    struct format format;
    unsigned count = 0;
    int code = read_format(form, &format);
    for (char *rest, *word = strtok_r(fields, ", ", &rest); code == OK && word && count < MOST_FIELDS; word = strtok_r(NULL, ", ", &rest)) {
        asked[count] = find(smi, word);
        if (!asked[count++]) {
            printf("Field \"%s\" is not a valid field to query.\n", word);
            code = INVALID_ARGUMENT;
        }
    }
    if (code == OK)
        code = smi_lost(smi);
    if (code != OK)
        return code;
    for (unsigned i = 0; format.header && i < count; i++)
        print_title(title(smi, asked[i]), asked[i]->unit, i + 1 == count);
    for (unsigned row = 0; row < smi->count; row++)
        for (unsigned i = 0; i < count; i++) {
            char cell[160];
            asked[i]->print(smi, &smi->node.card[smi->chosen[row]], cell, sizeof cell);
            print_cell(cell, asked[i]->unit, format, i + 1 == count);
        }
    return OK;
}

static void app_cell(const struct lab_card *card, const struct lab_holder *one, const char *word, char *cell, size_t size)
{
    if (!strcmp(word, "pid"))
        snprintf(cell, size, "%u", one->pid);
    else if (!strcmp(word, "process_name"))
        snprintf(cell, size, "%s", one->name);
    else if (!strcmp(word, "used_gpu_memory"))
        snprintf(cell, size, "%" PRIu64, one->memory >> 20);
    else if (!strcmp(word, "gpu_uuid"))
        snprintf(cell, size, "%s", card->uuid);
    else if (!strcmp(word, "gpu_bus_id"))
        snprintf(cell, size, "%s", card->bus_id);
    else if (!strcmp(word, "gpu_name"))
        snprintf(cell, size, "%s", card->name);
    else
        snprintf(cell, size, "[N/A]");
}

int smi_query_apps(const struct smi *smi, char *fields, const char *form)
{
    static const char *const KNOWN[][2] = {{"pid", "pid"}, {"process_name", "name"}, {"used_gpu_memory", "used_memory"}, {"gpu_uuid", "gpu_uuid"},
                                           {"gpu_bus_id", "gpu_bus_id"}, {"gpu_name", "gpu_name"}, {"gpu_serial", "gpu_serial"}, {"timestamp", "timestamp"}};
    const char *asked[MOST_FIELDS];
    struct format format;
    unsigned count = 0;
    int code = read_format(form, &format);
    for (char *rest, *word = strtok_r(fields, ", ", &rest); code == OK && word && count < MOST_FIELDS; word = strtok_r(NULL, ", ", &rest)) {
        asked[count] = NULL;
        for (unsigned i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
            if (!strcmp(KNOWN[i][0], word) || !strcmp(KNOWN[i][1], word))
                asked[count] = KNOWN[i][0];
        if (!asked[count++]) {
            printf("Field \"%s\" is not a valid field to query.\n", word);
            code = INVALID_ARGUMENT;
        }
    }
    if (code == OK)
        code = smi_lost(smi);
    if (code != OK)
        return code;
    for (unsigned i = 0; format.header && i < count; i++)
        print_title(asked[i], strcmp(asked[i], "used_gpu_memory") ? NULL : "MiB", i + 1 == count);
    for (unsigned row = 0; row < smi->count; row++) {
        const struct lab_card *card = &smi->node.card[smi->chosen[row]];
        for (unsigned at = 0; at < card->holders && at < LAB_HOLDERS; at++)
            for (unsigned i = 0; i < count && !card->holder[at].graphics; i++) {
                char cell[200];
                app_cell(card, &card->holder[at], asked[i], cell, sizeof cell);
                print_cell(cell, strcmp(asked[i], "used_gpu_memory") ? NULL : "MiB", format, i + 1 == count);
            }
    }
    return OK;
}
