/* The nvidia-smi of the simulated driver: options, which cards they are about, and the whole-tool failures. */
#define _GNU_SOURCE
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

struct option { const char *shown, *longer; int takes; };
/* Settings first: their short name is what smi_set knows them by. */
static const struct option OPTIONS[] = {
    {"-pl", "--power-limit", 1}, {"-pm", "--persistence-mode", 1}, {"-lgc", "--lock-gpu-clocks", 1}, {"-rgc", "--reset-gpu-clocks", 0},
    {"-lmc", "--lock-memory-clocks", 1}, {"-rmc", "--reset-memory-clocks", 0}, {"-gtt", "--gpu-target-temp", 1}, {"-ac", "--applications-clocks", 1},
    {"-rac", "--reset-applications-clocks", 0}, {"-r", "--gpu-reset", 0}, {"-i", "--id", 1}, {"-q", "--query", 0}, {"-x", "--xml-format", 0},
    {"-d", "--display", 1}, {"-L", "--list-gpus", 0}, {"--query-gpu", "--query-gpu", 1}, {"--query-compute-apps", "--query-compute-apps", 1},
    {"--format", "--format", 1}, {"--version", "--version", 0}, {"-h", "--help", 0}, {"-sc", "--scope", 1},
};
enum { SETTINGS = 10, OPTION_COUNT = sizeof OPTIONS / sizeof *OPTIONS };
enum { ID = 10, QUERY, XML, DISPLAY, LIST, QUERY_GPU, QUERY_APPS, FORMAT, VERSION, HELP };

static const char *given[OPTION_COUNT];

void smi_bus(const struct lab_card *card, char *text, unsigned size) { snprintf(text, size, "%.31s", card->bus_id); }

/* 1 where the word is this option; its value is what follows "=", or the next word. */
static int matches(const struct option *option, char **words, int *at)
{
    const char *word = words[*at], *value = "";
    size_t longer = strlen(option->longer), shown = strlen(option->shown);
    if (!strcmp(word, option->shown) || !strcmp(word, option->longer)) {
        if (option->takes && !(value = words[++*at]))
            return -1;
    } else if (option->takes && !strncmp(word, option->longer, longer) && word[longer] == '=') {
        value = word + longer + 1;
    } else if (option->takes && !strncmp(word, option->shown, shown) && word[shown] == '=') {
        value = word + shown + 1;
    } else {
        return 0;
    }
    given[option - OPTIONS] = value;
    return 1;
}

static int parse(char **words)
{
    for (int at = 1; words[at]; at++) {
        int found = 0;
        for (unsigned i = 0; i < OPTION_COUNT && !found; i++)
            found = matches(&OPTIONS[i], words, &at);
        if (found == 1)
            continue;
        if (found == -1)
            puts("Option requires an argument. Please run 'nvidia-smi -h' for help.");
        else
            printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
        return INVALID_ARGUMENT;
    }
    return OK;
}

static int is_card(const struct smi *smi, unsigned index, const char *wanted)
{
    const struct lab_card *card = &smi->node.card[index];
    char *end;
    unsigned domain = 0, bus, device, function;
    unsigned long number = strtoul(wanted, &end, 10);
    if (*wanted && !*end)
        return number == index;
    if (!strcmp(card->uuid, wanted))
        return 1;
    if (sscanf(wanted, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) {
        domain = 0;
        if (sscanf(wanted, "%x:%x.%x", &bus, &device, &function) != 3)
            return 0;
    }
    return card->domain == domain && card->bus == bus && card->device == device;
}

/* -i takes a list of indices, UUIDs or bus addresses. */
static int choose(struct smi *smi, const char *wanted)
{
    char list[512], *rest;
    smi->everything = !wanted;
    for (unsigned i = 0; !wanted && i < smi->node.cards; i++)
        smi->chosen[smi->count++] = i;
    snprintf(list, sizeof list, "%s", wanted ? wanted : "");
    for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        for (unsigned i = 0; i < smi->node.cards && smi->count < LAB_CARDS; i++)
            if (is_card(smi, i, word))
                smi->chosen[smi->count++] = i;
    if (smi->count)
        return OK;
    puts("No devices were found");
    return NOT_FOUND;
}

/* One card that fell off the bus ends the whole call, also for its healthy neighbours that were asked for with it. */
int smi_lost(const struct smi *smi)
{
    for (unsigned i = 0; i < smi->count; i++) {
        const struct lab_card *card = &smi->node.card[smi->chosen[i]];
        if (card->faults & CARD_LOST) {
            printf("Unable to determine the device handle for GPU %04X:%02X:%02X.0: GPU is lost.  Reboot the system to recover this GPU\n",
                   card->domain, card->bus, card->device);
            return GPU_IS_LOST;
        }
    }
    return OK;
}

static int start(struct smi *smi)
{
    int code = lab_look(&smi->node);
    if (code == DRIVER_NOT_LOADED) {
        puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed "
             "and running.\n");
    } else if (code == LIB_RM_VERSION_MISMATCH) {
        puts("Failed to initialize NVML: Driver/library version mismatch");
        if (lab_branch(&smi->node) >= 530)
            printf("NVML library version: %.*s\n", (int)strcspn(strchr(smi->node.library, '.') ? strchr(smi->node.library, '.') + 1 : "", ".") +
                   (int)strcspn(smi->node.library, ".") + 1, smi->node.library);
    }
    return code;
}

static int help(void)
{
    puts("NVIDIA System Management Interface, simulated by Wattherd's lab.\n\nnvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...\n");
    for (unsigned i = 0; i < OPTION_COUNT; i++)
        printf("    %-6s%s %s%s\n", OPTIONS[i].shown, strcmp(OPTIONS[i].shown, OPTIONS[i].longer) ? "," : " ", OPTIONS[i].longer, OPTIONS[i].takes ? "=" : "");
    return OK;
}

static int settings(struct smi *smi)
{
    unsigned asked = 0, which = 0;
    for (unsigned i = 0; i < SETTINGS; i++)
        if (given[i]) {
            asked++;
            which = i;
        }
    if (asked > 1) {
        puts("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
        return INVALID_ARGUMENT;
    }
    int code = smi_lost(smi);
    return code == OK ? smi_set(smi, OPTIONS[which].shown, given[which]) : code;
}

static int act(struct smi *smi)
{
    char fields[8192];
    int setting = 0;
    for (unsigned i = 0; i < SETTINGS; i++)
        setting |= given[i] != NULL;
    int code = choose(smi, given[ID]);
    if (code != OK)
        return code;
    if (setting)
        return settings(smi);
    if (given[QUERY_GPU] || given[QUERY_APPS]) {
        snprintf(fields, sizeof fields, "%s", given[QUERY_GPU] ? given[QUERY_GPU] : given[QUERY_APPS]);
        return (given[QUERY_GPU] ? smi_query_gpu : smi_query_apps)(smi, fields, given[FORMAT]);
    }
    if (given[LIST])
        return smi_list(smi);
    if (given[QUERY])
        return smi_log(smi, given[DISPLAY], given[XML] != NULL);
    return smi_table(smi);
}

int main(int argc, char **argv)
{
    static struct smi smi;
    (void)argc;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    int code = parse(argv);
    if (code != OK)
        return code;
    if (given[HELP])
        return help();
    code = start(&smi);
    if (given[VERSION] && (code == OK || code == DRIVER_NOT_LOADED))
        return smi_version(&smi);
    return code == OK ? act(&smi) : code;
}
