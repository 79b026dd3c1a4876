/* Loads the simulated driver: at boot, and anew after a reload. Limits and locks are the defaults again, counters start at zero, and a card
 * that was lost or wanted a reset is back. Run by root, from the unit lab-gpu.service. */
#define _GNU_SOURCE
#include "lab.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void renew(struct lab_card *card, unsigned long long now)
{
    card->requested_mw = card->default_mw;
    card->gpu_lock_min_mhz = card->gpu_lock_max_mhz = card->memory_lock_min_mhz = card->memory_lock_max_mhz = 0;
    card->target_c = card->target_default_c;
    card->persistence = 0;
    card->energy_mj = card->power_violation_ns = card->thermal_violation_ns = card->board_violation_ns = 0;
    card->holders = 0;
    card->faults &= ~(CARD_LOST | CARD_RESET);
    card->set_at_ns = now;
}

int main(int argc, char **argv)
{
    struct timespec time_now;
    int descriptor = argc > 1 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
    struct lab_node *node = descriptor < 0 ? MAP_FAILED : mmap(NULL, sizeof *node, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (node == MAP_FAILED || node->magic != LAB_MAGIC || node->layout != LAB_LAYOUT) {
        fprintf(stderr, "usage: load STATE (a state file of this layout)\n");
        return 1;
    }
    flock(descriptor, LOCK_EX);
    clock_gettime(CLOCK_MONOTONIC, &time_now);
    unsigned long long now = (unsigned long long)time_now.tv_sec * 1000000000ull + (unsigned long long)time_now.tv_nsec;
    for (unsigned i = 0; i < node->cards && i < LAB_CARDS; i++)
        renew(&node->card[i], now);
    memset(node->hung, 0, sizeof node->hung);
    node->epoch++;
    node->loaded_at_ns = now;
    return 0;
}
