/* What nvidia-smi prints for people: the plain table, -L and --version. */
#include "smi.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NAME_WIDTH = 23, BRANCH_KMD = 610 };

int smi_list(const struct smi *smi)
{
    int code = smi_lost(smi);
    for (unsigned i = 0; code == OK && i < smi->count; i++)
        printf("GPU %u: %s (UUID: %s)\n", smi->chosen[i], smi->node.card[smi->chosen[i]].name, smi->node.card[smi->chosen[i]].uuid);
    return code;
}

int smi_version(const struct smi *smi)
{
    const struct lab_node *node = &smi->node;
    int kmd = lab_branch(node) >= BRANCH_KMD;
    printf("NVIDIA-SMI version  : %s\nNVML version        : %.7s\n", node->library, node->library);
    if (kmd)
        printf("DRIVER version      : Deprecated, see \"KMD version\" instead\nKMD version         : %s\n", node->driver);
    else
        printf("DRIVER version      : %s\n", node->driver);
    printf("CUDA Version        : %u.%u\n", node->cuda_version / 1000, node->cuda_version % 1000 / 10);
    return OK;
}

static void rule(char left, char line) { printf("%c", left); for (int i = 0; i < 41; i++) putchar(line); putchar('+'); for (int i = 0; i < 24; i++) putchar(line); putchar('+'); for (int i = 0; i < 22; i++) putchar(line); puts("+"); }

static void shorten(const char *name, char *text, size_t size)
{
    if (strlen(name) > NAME_WIDTH)
        snprintf(text, size, "%.*s...", NAME_WIDTH - 3, name);
    else
        snprintf(text, size, "%s", name);
}

static void whole(int code, unsigned value, const char *unit, char *text, size_t size)
{
    if (code == OK)
        snprintf(text, size, "%u%s", value, unit);
    else
        snprintf(text, size, "%s", code == NOT_SUPPORTED ? "N/A" : "ERR!");
}

static void row(const struct smi *smi, unsigned index)
{
    const struct lab_card *card = &smi->node.card[index];
    char name[64], fan[16], temperature[16], draw[16], cap[16], used[48], gpu[16], pstate[8];
    unsigned value = 0, other = 0;
    unsigned long long bytes = 0;
    shorten(card->name, name, sizeof name);
    int code = lab_fan(card, &value);
    whole(code, value, "%", fan, sizeof fan);
    code = lab_temperature(card, &value);
    whole(code, value, "C", temperature, sizeof temperature);
    code = lab_power(card, &value);
    whole(code, value / 1000, "W", draw, sizeof draw);
    code = lab_enforced(card, &value);
    whole(code, value / 1000, "W", cap, sizeof cap);
    code = lab_utilization(card, &value, &other);
    whole(code, value, "%", gpu, sizeof gpu);
    if (lab_used(card, &bytes) == OK)
        snprintf(used, sizeof used, "%lluMiB / %6lluMiB", bytes >> 20, (unsigned long long)card->memory_total >> 20);
    else
        snprintf(used, sizeof used, "Not Supported");
    snprintf(pstate, sizeof pstate, card->faults & CARD_NVGPU ? "N/A" : "P%u", card->pstate);
    printf("| %3u  %-23s %10s | %-16s %5s | %20s |\n", index, name, card->persistence ? "On" : "Off", card->bus_id, "Off", card->can & CAN_ECC ? "0" : "N/A");
    printf("| %3s  %4s   %-3s %13s / %7s | %22s | %8s      Default |\n", fan, temperature, pstate, draw, cap, used, gpu);
    printf("| %39s | %22s | %20s |\n", "", "", card->can & CAN_MIG ? "Disabled" : "N/A");
}

int smi_table(const struct smi *smi)
{
    char stamp[64];
    time_t now = time(NULL);
    int listed = 0, code = smi_lost(smi);
    if (code != OK)
        return code;
    strftime(stamp, sizeof stamp, "%a %b %e %H:%M:%S %Y", localtime(&now));
    puts(stamp);
    puts("+-----------------------------------------------------------------------------------------+");
    printf("| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %2u.%-4u |\n", smi->node.library, smi->node.driver, smi->node.cuda_version / 1000,
           smi->node.cuda_version % 1000 / 10);
    rule('|', '-');
    puts("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |");
    puts("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |");
    puts("|                                         |                        |               MIG M. |");
    rule('|', '=');
    for (unsigned i = 0; i < smi->count; i++) {
        row(smi, smi->chosen[i]);
        rule('+', '-');
    }
    puts("\n+-----------------------------------------------------------------------------------------+");
    puts("| Processes:                                                                              |");
    puts("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |");
    puts("|        ID   ID                                                               Usage      |");
    puts("|=========================================================================================|");
    for (unsigned i = 0; i < smi->count; i++) {
        const struct lab_card *card = &smi->node.card[smi->chosen[i]];
        for (unsigned at = 0; at < card->holders && at < LAB_HOLDERS; at++, listed++)
            printf("| %4u   N/A  N/A %16u %6s   %-34.34s %7" PRIu64 "MiB |\n", smi->chosen[i], card->holder[at].pid, card->holder[at].graphics ? "G" : "C",
                   card->holder[at].name, card->holder[at].memory >> 20);
    }
    if (!listed)
        puts("|  No running processes found                                                             |");
    puts("+-----------------------------------------------------------------------------------------+");
    return OK;
}
