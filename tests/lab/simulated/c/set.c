/* nvidia-smi's settings, in the words and with the exit codes that the field reports (facts/power.md, a and b): not supported is
 * a warning and 0, out of range two lines and 2 (assumed: no report gives the number), no permission 4. */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REFUSED_RESET = 255, MOST_MHZ = 100000 };

/* What one option does: how it is asked for, and what the tool calls it. */
struct setting {
    const char *option, *failing, *unsupported, *forbidden;
};

static const struct setting SETTINGS[] = {
    {"-pl", "set power management limit", "Changing power management limit is not supported for GPU: %s.", NULL},
    {"-pm", "set persistence mode", "Setting persistence mode is not supported for GPU %s.", "Unable to set persistence mode for GPU %s: Insufficient Permissions"},
    {"-lgc", "set locked GPU clocks", "Setting locked GPU clocks is not supported for GPU %s.", "The current user does not have permission to change clocks for GPU %s."},
    {"-rgc", "reset locked GPU clocks", "Resetting locked GPU clocks is not supported for GPU %s.", "The current user does not have permission to change clocks for GPU %s."},
    {"-lmc", "set locked memory clocks", "Setting locked Memory clocks is not supported for GPU %s.", "The current user does not have permission to change clocks for GPU %s."},
    {"-rmc", "reset locked memory clocks", "Resetting locked Memory clocks is not supported for GPU %s.", "The current user does not have permission to change clocks for GPU %s."},
    {"-gtt", "set GPU target temperature", "Changing GPU target temperature is not supported for GPU: %s.", NULL},
    {"-ac", "set applications clocks", "Setting applications clocks is not supported for GPU %s.", NULL},
    {"-rac", "reset applications clocks", "Resetting applications clocks is not supported for GPU %s.", NULL},
    {"-r", "reset", NULL, NULL},
};

static const struct setting *find(const char *option)
{
    for (unsigned i = 0; i < sizeof SETTINGS / sizeof *SETTINGS; i++)
        if (!strcmp(SETTINGS[i].option, option))
            return &SETTINGS[i];
    return NULL;
}

static void say(const char *form, const char *bus)
{
    printf(form, bus);
    putchar('\n');
}

static int invalid(const char *option, const char *value)
{
    printf("Invalid argument \"%s\" for %s. Please run 'nvidia-smi -h' for help.\n", value, option);
    return INVALID_ARGUMENT;
}

static int number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return *text && !*end && *value >= 0;
}

/* "most" or "least,most" in MHz; one number is both. */
static int range(const char *text, unsigned *least, unsigned *most)
{
    char *end;
    unsigned long low = strtoul(text, &end, 10), high = low;
    if (end == text)
        return 0;
    if (*end == ',') {
        const char *second = end + 1;
        high = strtoul(second, &end, 10);
        if (end == second)
            return 0;
    }
    if (*end || low > high || high > MOST_MHZ)
        return 0;
    *least = (unsigned)low;
    *most = (unsigned)high;
    return 1;
}

static void warn_unkept(const struct lab_card *card, const char *bus)
{
    if (!card->persistence)
        printf("Warning: persistence mode is disabled on device %s. See the Known Issues section of the nvidia-smi(1) man page for more "
               "information. Run with [--help | -h] switch to get more information on how to enable persistence mode.\n", bus);
}

static int set_limit(struct lab_card *card, const char *bus, double watts)
{
    unsigned before = card->requested_mw;
    int code = lab_set_limit(card, (unsigned)(watts * 1000 + 0.5));
    if (code == OK) {
        printf("Power limit for GPU %s was set to %.2f W from %.2f W.\n", bus, watts, before / 1000.0);
        warn_unkept(card, bus);
    } else if (code == INVALID_ARGUMENT) {
        printf("Provided power limit %.2f W is not a valid power limit which should be between %.2f W and %.2f W for GPU %s\n", watts,
               card->min_mw / 1000.0, card->max_mw / 1000.0, bus);
    }
    return code;
}

static int set_persistence(const struct smi *smi, struct lab_card *card, const char *bus, unsigned on)
{
    unsigned before = card->persistence;
    int code = lab_set_persistence(card, on);
    if (code == OK && before == on)
        printf("Persistence mode is already %s for GPU %s.\n", on ? "Enabled" : "Disabled", bus);
    else if (code == OK)
        printf("%s %spersistence mode for GPU %s.\n", on ? "Enabled" : "Disabled", lab_branch(&smi->node) >= 580 ? "Legacy " : "", bus);
    return code;
}

static int set_target(struct lab_card *card, const char *bus, unsigned celsius)
{
    int code = lab_set_target(card, celsius);
    if (code == OK)
        printf("GPU Target Temperature Threshold set to %u C for GPU %s.\n", celsius, bus);
    else if (code == INVALID_ARGUMENT)
        printf("Provided target temperature %u C is not a valid target temperature which should be between %u C and %u C for GPU %s\n", celsius,
               card->target_min_c, card->target_max_c, bus);
    return code;
}

static int reset(struct lab_card *card, const char *bus)
{
    if (card->persistence || card->holders) {
        printf("The following GPUs could not be reset:\n  GPU %s: In use by another client\n\n1 device is currently being used by one or more "
               "other processes (e.g., Fabric Manager, CUDA application, graphics application such as an X server, or a monitoring application "
               "such as another instance of nvidia-smi). Please first kill all processes using this device and all compute applications running "
               "in the system.\n", bus);
        return REFUSED_RESET;
    }
    if (card->faults & CARD_LOST)
        return GPU_IS_LOST;
    card->requested_mw = card->default_mw;
    card->gpu_lock_min_mhz = card->gpu_lock_max_mhz = card->memory_lock_min_mhz = card->memory_lock_max_mhz = 0;
    card->target_c = card->target_default_c;
    card->energy_mj = card->power_violation_ns = card->thermal_violation_ns = card->board_violation_ns = 0;
    card->faults &= ~CARD_RESET;
    printf("GPU %s was successfully reset.\n", bus);
    return OK;
}

/* One card; what the card itself answers is said here, the general refusals by the caller. */
static int change(const struct smi *smi, struct lab_card *card, const char *bus, const char *option, const char *value)
{
    unsigned least = 0, most = 0;
    double watts = 0;
    int code;
    if (!strcmp(option, "-pl"))
        return number(value, &watts) ? set_limit(card, bus, watts) : invalid(option, value);
    if (!strcmp(option, "-pm")) {
        int on = !strcmp(value, "1") || !strcmp(value, "ENABLED");
        return on || !strcmp(value, "0") || !strcmp(value, "DISABLED") ? set_persistence(smi, card, bus, (unsigned)on) : invalid(option, value);
    }
    if (!strcmp(option, "-gtt"))
        return number(value, &watts) ? set_target(card, bus, (unsigned)watts) : invalid(option, value);
    if (!strcmp(option, "-r"))
        return reset(card, bus);
    if (!strcmp(option, "-rgc"))
        return lab_set_gpu_lock(card, 0, 0);
    if (!strcmp(option, "-rmc"))
        return lab_set_memory_lock(card, 0, 0);
    if (!strcmp(option, "-ac") || !strcmp(option, "-rac"))
        return lab_alive(card) == OK ? NOT_SUPPORTED : lab_alive(card);
    if (!range(value, &least, &most))
        return invalid(option, value);
    if (!strcmp(option, "-lgc")) {
        code = lab_set_gpu_lock(card, least, most);
        if (code == OK)
            printf("GPU clocks set to \"(gpuClkMin %u, gpuClkMax %u)\" for GPU %s\n", least, most, bus);
    } else {
        code = lab_set_memory_lock(card, least, most);
        if (code == OK)
            printf("Memory clocks set to \"(memClkMin %u, memClkMax %u)\" for GPU %s\n", least, most, bus);
    }
    if (code == OK)
        warn_unkept(card, bus);
    return code;
}

int smi_set(struct smi *smi, const char *option, const char *value)
{
    const struct setting *setting = find(option);
    struct lab_node *node;
    int code = lab_hold(&node);
    if (code != OK) {
        printf("Failed to %s: %s\n", setting->failing, lab_words(code));
        return code;
    }
    for (unsigned i = 0; i < smi->count && code == OK; i++) {
        struct lab_card *card = &node->card[smi->chosen[i]];
        char bus[32];
        smi_bus(card, bus, sizeof bus);
        code = change(smi, card, bus, option, value);
        if (code == NOT_SUPPORTED && setting->unsupported) {
            say(setting->unsupported, bus);
            puts("Treating as warning and moving on.");
            code = OK;
        } else if (code == NO_PERMISSION && setting->forbidden) {
            say(setting->forbidden, bus);
        } else if (code != OK && code != INVALID_ARGUMENT && code != REFUSED_RESET) {
            printf("Failed to %s for GPU %s: %s\n", setting->failing, bus, lab_words(code));
        }
    }
    lab_release(node);
    if (code == OK)
        puts("All done.");
    else if (code != REFUSED_RESET)
        puts("Terminating early due to previous errors.");
    return code;
}
