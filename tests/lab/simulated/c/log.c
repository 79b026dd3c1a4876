/* nvidia-smi -q, with -d and -x: one walk that is written as text or as XML, with the labels of the driver's own branch. The samples that
 * it follows are in ../shared/facts/hardware/samples; sections that say nothing of power, clocks or memory are left out. */
#define _GNU_SOURCE
#include "smi.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { LABEL_ENDS = 42, BRANCH_GPU_READINGS = 535, BRANCH_SPLIT = 570, BRANCH_CEILING = 610, BRANCH_DEPRECATED = 590 };

static int as_xml, depth;
static const char *open_tags[16];

static void text(const char *label, const char *tag, const char *form, ...)
{
    char value[256];
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(value, sizeof value, form, arguments);
    va_end(arguments);
    if (as_xml)
        printf("%*s<%s>%s</%s>\n", 0, "", tag, value, tag);
    else
        printf("%*s%-*s: %s\n", 4 * depth, "", LABEL_ENDS - 4 * depth, label, value);
}

static void line(const char *label, const char *tag, const char *form, ...)
{
    char value[256];
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(value, sizeof value, form, arguments);
    va_end(arguments);
    for (int i = 0; as_xml && i < depth; i++)
        putchar('\t');
    text(label, tag, "%s", value);
}

static void begin(const char *label, const char *tag)
{
    for (int i = 0; as_xml && i < depth; i++)
        putchar('\t');
    if (as_xml)
        printf("<%s>\n", tag);
    else
        printf("%*s%s\n", 4 * depth, "", label);
    open_tags[depth++] = tag;
}

static void end(void)
{
    depth--;
    for (int i = 0; as_xml && i < depth; i++)
        putchar('\t');
    if (as_xml)
        printf("</%s>\n", open_tags[depth]);
}

static const char *absent(int code) { return code == NOT_SUPPORTED ? "N/A" : lab_words(code); }

static void watts(const char *label, const char *tag, int code, unsigned milliwatts)
{
    code == OK ? line(label, tag, "%.2f W", milliwatts / 1000.0) : line(label, tag, "%s", absent(code));
}

static void number(const char *label, const char *tag, int code, unsigned value, const char *unit)
{
    code == OK ? line(label, tag, "%u %s", value, unit) : line(label, tag, "%s", absent(code));
}

#define WATTS(label, tag, reading)                                                                                                         \
    do {                                                                                                                                   \
        unsigned value = 0;                                                                                                                \
        int code = reading;                                                                                                                \
        watts(label, tag, code, value);                                                                                                    \
    } while (0)
#define NUMBER(label, tag, unit, reading)                                                                                                  \
    do {                                                                                                                                   \
        unsigned value = 0;                                                                                                                \
        int code = reading;                                                                                                                \
        number(label, tag, code, value, unit);                                                                                             \
    } while (0)

static void power_old(const struct lab_card *card)
{
    unsigned least = 0;
    begin("Power Readings", "power_readings");
    if (as_xml)
        line("", "power_state", "P%u", card->pstate);
    line("Power Management", "power_management", "%s", lab_least(card, &least) == OK ? "Supported" : "N/A");
    WATTS("Power Draw", "power_draw", lab_power(card, &value));
    WATTS("Power Limit", "power_limit", lab_limit(card, &value));
    WATTS("Default Power Limit", "default_power_limit", lab_default(card, &value));
    WATTS("Enforced Power Limit", "enforced_power_limit", lab_enforced(card, &value));
    WATTS("Min Power Limit", "min_power_limit", lab_least(card, &value));
    WATTS("Max Power Limit", "max_power_limit", lab_most(card, &value));
    end();
}

static void limits(const struct lab_card *card)
{
    WATTS("Current Power Limit", "current_power_limit", lab_enforced(card, &value));
    WATTS("Requested Power Limit", "requested_power_limit", lab_limit(card, &value));
    WATTS("Default Power Limit", "default_power_limit", lab_default(card, &value));
}

/* The same labels once more, of a part that no simulated card has. */
static void power_of_none(const char *label, const char *tag, int split, int with_limits)
{
    begin(label, tag);
    if (split) {
        line("Average Power Draw", "average_power_draw", "N/A");
        line("Instantaneous Power Draw", "instant_power_draw", "N/A");
    } else {
        line("Power Draw", "power_draw", "N/A");
    }
    if (with_limits) {
        line("Current Power Limit", "current_power_limit", "N/A");
        line("Requested Power Limit", "requested_power_limit", "N/A");
        line("Default Power Limit", "default_power_limit", "N/A");
        line("Min Power Limit", "min_power_limit", "N/A");
        line("Max Power Limit", "max_power_limit", "N/A");
    }
    end();
}

static void power(const struct smi *smi, const struct lab_card *card)
{
    unsigned branch = lab_branch(&smi->node);
    if (branch < BRANCH_GPU_READINGS) {
        power_old(card);
        return;
    }
    begin("GPU Power Readings", "gpu_power_readings");
    if (as_xml)
        line("", "power_state", "P%u", card->pstate);
    if (branch >= BRANCH_SPLIT) {
        WATTS("Average Power Draw", "average_power_draw", lab_average(&smi->node, card, &value));
        WATTS("Instantaneous Power Draw", "instant_power_draw", lab_instant(&smi->node, card, &value));
    } else {
        WATTS("Power Draw", "power_draw", lab_power(card, &value));
    }
    if (branch >= BRANCH_CEILING) {
        line("GPU Base Power", "gpu_base_power", "N/A");
        begin("GPU Ceiling Power Limit", "gpu_ceiling_power_limit");
        limits(card);
        end();
    } else {
        limits(card);
    }
    WATTS("Min Power Limit", "min_power_limit", lab_least(card, &value));
    WATTS("Max Power Limit", "max_power_limit", lab_most(card, &value));
    end();
    if (branch >= BRANCH_SPLIT)
        power_of_none("GPU Memory Power Readings", "gpu_memory_power_readings", 1, 0);
    power_of_none("Module Power Readings", "module_power_readings", branch >= BRANCH_SPLIT, 1);
}

static void temperature(const struct smi *smi, const struct lab_card *card)
{
    (void)smi;
    begin("Temperature", "temperature");
    NUMBER("GPU Current Temp", "gpu_temp", "C", lab_temperature(card, &value));
    line("GPU T.Limit Temp", "gpu_temp_tlimit", "N/A");
    NUMBER("GPU Target Temperature", "gpu_target_temperature", "C", lab_target(card, &value));
    NUMBER("Memory Current Temp", "memory_temp", "C", lab_memory_temperature(card, &value));
    end();
}

static void reason(const struct smi *smi, const char *label, const char *suffix, uint64_t active)
{
    char tag[96];
    snprintf(tag, sizeof tag, "clocks_%s_reason_%s", lab_branch(&smi->node) < BRANCH_GPU_READINGS ? "throttle" : "event", suffix);
    line(label, tag, active ? "Active" : "Not Active");
}

static void performance(const struct smi *smi, const struct lab_card *card)
{
    int old = lab_branch(&smi->node) < BRANCH_GPU_READINGS;
    if (lab_alive(card) == OK)
        line("Performance State", "performance_state", "P%u", card->pstate);
    else
        line("Performance State", "performance_state", "%s", lab_words(lab_alive(card)));
    begin(old ? "Clocks Throttle Reasons" : "Clocks Event Reasons", old ? "clocks_throttle_reasons" : "clocks_event_reasons");
    reason(smi, "Idle", "gpu_idle", card->reasons & REASON_IDLE);
    reason(smi, "Applications Clocks Setting", "applications_clocks_setting", 0);
    reason(smi, "SW Power Cap", "sw_power_cap", card->reasons & REASON_POWER_CAP);
    reason(smi, "HW Slowdown", "hw_slowdown", 0);
    if (!as_xml)
        depth++;
    reason(smi, "HW Thermal Slowdown", "hw_thermal_slowdown", 0);
    reason(smi, "HW Power Brake Slowdown", "hw_power_brake_slowdown", 0);
    if (!as_xml)
        depth--;
    reason(smi, "Sync Boost", "sync_boost", 0);
    reason(smi, "SW Thermal Slowdown", "sw_thermal_slowdown", card->reasons & REASON_THERMAL);
    reason(smi, "Display Clock Setting", "display_clocks_setting", 0);
    end();
}

static void memory(const struct smi *smi, const struct lab_card *card)
{
    unsigned long long used = 0;
    int code = lab_used(card, &used);
    (void)smi;
    begin("FB Memory Usage", "fb_memory_usage");
    number("Total", "total", code, (unsigned)(card->memory_total >> 20), "MiB");
    number("Reserved", "reserved", code, (unsigned)(card->memory_reserved >> 20), "MiB");
    number("Used", "used", code, (unsigned)(used >> 20), "MiB");
    number("Free", "free", code, (unsigned)((card->memory_total - used - card->memory_reserved) >> 20), "MiB");
    end();
}

static void utilization(const struct smi *smi, const struct lab_card *card)
{
    unsigned gpu = 0, of_memory = 0;
    int code = lab_utilization(card, &gpu, &of_memory);
    begin("Utilization", "utilization");
    number(lab_branch(&smi->node) < 550 ? "Gpu" : "GPU", "gpu_util", code, gpu, "%");
    number("Memory", "memory_util", code, of_memory, "%");
    end();
}

static void clocks(const struct smi *smi, const struct lab_card *card)
{
    const char *applications = lab_branch(&smi->node) >= BRANCH_DEPRECATED ? lab_words(DEPRECATED) : "N/A";
    begin("Clocks", "clocks");
    NUMBER("Graphics", "graphics_clock", "MHz", lab_sm(card, &value));
    NUMBER("SM", "sm_clock", "MHz", lab_sm(card, &value));
    NUMBER("Memory", "mem_clock", "MHz", lab_memory_clock(card, &value));
    line("Video", "video_clock", "N/A");
    end();
    begin("Applications Clocks", "applications_clocks");
    line("Graphics", "graphics_clock", "%s", applications);
    line("Memory", "mem_clock", "%s", applications);
    end();
    begin("Max Clocks", "max_clocks");
    NUMBER("Graphics", "graphics_clock", "MHz", lab_sm_max(card, &value));
    NUMBER("SM", "sm_clock", "MHz", lab_sm_max(card, &value));
    NUMBER("Memory", "mem_clock", "MHz", lab_memory_max(card, &value));
    line("Video", "video_clock", "N/A");
    end();
}

static void process(const struct lab_holder *one)
{
    if (as_xml)
        begin("", "process_info");
    line("GPU instance ID", "gpu_instance_id", "N/A");
    line("Compute instance ID", "compute_instance_id", "N/A");
    line("Process ID", "pid", "%u", one->pid);
    if (!as_xml)
        depth++;
    line("Type", "type", one->graphics ? "G" : "C");
    line("Name", "process_name", "%s", one->name);
    line("Used GPU Memory", "used_memory", "%" PRIu64 " MiB", one->memory >> 20);
    if (as_xml)
        end();
    else
        depth--;
}

static void processes(const struct smi *smi, const struct lab_card *card)
{
    (void)smi;
    if (!card->holders && !as_xml) {
        line("Processes", "processes", "None");
        return;
    }
    begin("Processes", "processes");
    for (unsigned i = 0; i < card->holders && i < LAB_HOLDERS; i++)
        process(&card->holder[i]);
    end();
}

static void identity(const char *label, const char *tag, unsigned value)
{
    value ? line(label, tag, "0x%08X", value) : line(label, tag, "N/A");
}

static void product(const struct smi *smi, const struct lab_card *card)
{
    static const char *const NAMES[] = {"", "", "Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell"};
    line("Product Name", "product_name", "%s", card->name);
    line("Product Architecture", "product_architecture", "%s", card->architecture < 11 ? NAMES[card->architecture] : "Unknown");
    line("Persistence Mode", "persistence_mode", card->persistence ? "Enabled" : "Disabled");
    begin("MIG Mode", "mig_mode");
    line("Current", "current_mig", card->can & CAN_MIG ? "Disabled" : "N/A");
    line("Pending", "pending_mig", card->can & CAN_MIG ? "Disabled" : "N/A");
    end();
    line("GPU UUID", "uuid", "%s", card->uuid);
    line("Minor Number", "minor_number", "%u", (unsigned)(card - smi->node.card));
    line("VBIOS Version", "vbios_version", "%s", card->vbios);
    begin("PCI", "pci");
    line("Bus", "pci_bus", "0x%02X", card->bus);
    line("Device", "pci_device", "0x%02X", card->device);
    line("Domain", "pci_domain", "0x%04X", card->domain);
    identity("Device Id", "pci_device_id", card->device_id);
    line("Bus Id", "pci_bus_id", "%s", card->bus_id);
    identity("Sub System Id", "pci_sub_system_id", card->subsystem_id);
    end();
    NUMBER("Fan Speed", "fan_speed", "%", lab_fan(card, &value));
}

static const struct { const char *name; void (*print)(const struct smi *, const struct lab_card *); } SECTIONS[] = {
    {"", product}, {"PERFORMANCE", performance}, {"MEMORY", memory}, {"UTILIZATION", utilization}, {"TEMPERATURE", temperature},
    {"POWER", power}, {"CLOCK", clocks}, {"PIDS", processes},
};
enum { SECTION_COUNT = sizeof SECTIONS / sizeof *SECTIONS };

static int wanted(const char *list, const char *name)
{
    if (!list)
        return 1;
    size_t length = strlen(name);
    for (const char *at = list; length && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncasecmp(at, name, length) && (at[length] == ',' || !at[length]))
            return 1;
    return 0;
}

static int known(const char *list)
{
    char copy[256], *rest;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int found = 0;
        for (unsigned i = 1; i < SECTION_COUNT; i++)
            found |= !strcasecmp(word, SECTIONS[i].name);
        if (!found) {
            printf("Display type \"%s\" is not recognized.\n", word);
            return 0;
        }
    }
    return 1;
}

int smi_log(const struct smi *smi, const char *sections, int xml)
{
    char stamp[64];
    time_t now = time(NULL);
    unsigned cuda = smi->node.cuda_version;
    int code;
    if (sections && !known(sections))
        return INVALID_ARGUMENT;
    if ((code = smi_lost(smi)) != OK)
        return code;
    as_xml = xml;
    strftime(stamp, sizeof stamp, "%a %b %e %H:%M:%S %Y", localtime(&now));
    if (xml) {
        printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v%d.dtd\">\n", lab_branch(&smi->node) >= BRANCH_DEPRECATED ? 13 : 12);
        begin("", "nvidia_smi_log");
    } else {
        puts("\n==============NVSMI LOG==============\n");
    }
    line("Timestamp", "timestamp", "%s", stamp);
    line("Driver Version", "driver_version", "%s", smi->node.driver);
    line("CUDA Version", "cuda_version", "%u.%u", cuda / 1000, cuda % 1000 / 10);
    if (!xml)
        putchar('\n');
    line("Attached GPUs", "attached_gpus", "%u", smi->node.cards);
    for (unsigned i = 0; i < smi->count; i++) {
        const struct lab_card *card = &smi->node.card[smi->chosen[i]];
        if (xml)
            printf("\t<gpu id=\"%s\">\n", card->bus_id);
        else
            printf("GPU %s\n", card->bus_id);
        depth++;
        for (unsigned at = 0; at < SECTION_COUNT; at++)
            if (wanted(sections, SECTIONS[at].name))
                SECTIONS[at].print(smi, card);
        depth--;
        puts(xml ? "\t</gpu>" : "");
    }
    if (xml)
        end();
    return OK;
}
