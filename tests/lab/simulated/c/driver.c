/* The state file, and every reading and setting of a card. A value that the card does not have is NOT_SUPPORTED, never 0. */
#define _GNU_SOURCE
#include "lab.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The device node of the real driver: what a sandbox hides there, it hides here. Tests compile with a place of their own. */
#ifndef LAB_PLACE
#define LAB_PLACE "/dev/nvidiactl"
#endif
static const char PLACE[] = LAB_PLACE;

/* The device node is everybody's, as the real one is; settings are root's. */
static int may_set(void) { return geteuid() == 0; }

static struct lab_node *map(int *descriptor, int *write)
{
    *descriptor = open(PLACE, O_RDWR | O_CLOEXEC);
    *write = *descriptor >= 0;
    if (*descriptor < 0)
        *descriptor = open(PLACE, O_RDONLY | O_CLOEXEC);
    if (*descriptor < 0)
        return NULL;
    struct lab_node *node = mmap(NULL, sizeof *node, PROT_READ | (*write ? PROT_WRITE : 0), MAP_SHARED, *descriptor, 0);
    if (node == MAP_FAILED || node->magic != LAB_MAGIC || node->layout != LAB_LAYOUT) {
        if (node != MAP_FAILED)
            munmap(node, sizeof *node);
        close(*descriptor);
        return NULL;
    }
    return node;
}

static void unmap(struct lab_node *node, int descriptor)
{
    munmap(node, sizeof *node);
    close(descriptor);
}

static int listed(const struct lab_node *node, unsigned self)
{
    for (unsigned i = 0; i < LAB_HUNG; i++)
        if (node->hung[i] == self)
            return 1;
    return 0;
}

/* Asks to be frozen by the daemon outside (a process frozen there cannot be killed), and waits for the fault to be cleared. It takes the lock
 * once only: a process that is frozen with it would stop everybody. */
static void hang(struct lab_node *node, int descriptor, int write)
{
    const struct timespec moment = {.tv_nsec = 20 * 1000 * 1000};
    unsigned self = (unsigned)getpid();
    while (node->faults & NODE_HANG) {
        if (write && !listed(node, self) && flock(descriptor, LOCK_EX) == 0) {
            unsigned place = 0;
            while (place < LAB_HUNG - 1 && node->hung[place])
                place++;
            node->hung[place] = self;
            flock(descriptor, LOCK_UN);
        }
        nanosleep(&moment, NULL);
    }
}

static int fault(const struct lab_node *node)
{
    if (node->faults & NODE_NO_DRIVER)
        return DRIVER_NOT_LOADED;
    return node->faults & NODE_MISMATCH ? LIB_RM_VERSION_MISMATCH : OK;
}

int lab_look(struct lab_node *copy)
{
    int descriptor, write;
    struct lab_node *node = map(&descriptor, &write);
    if (!node)
        return DRIVER_NOT_LOADED;
    hang(node, descriptor, write);
    flock(descriptor, LOCK_SH);
    memcpy(copy, node, sizeof *copy);
    flock(descriptor, LOCK_UN);
    unmap(node, descriptor);
    return fault(copy);
}

static int held_descriptor = -1;

int lab_hold(struct lab_node **node)
{
    int write;
    *node = map(&held_descriptor, &write);
    if (!*node)
        return DRIVER_NOT_LOADED;
    if (!write) {
        unmap(*node, held_descriptor);
        return NO_PERMISSION;
    }
    hang(*node, held_descriptor, write);
    flock(held_descriptor, LOCK_EX);
    return OK;
}

void lab_release(struct lab_node *node)
{
    flock(held_descriptor, LOCK_UN);
    unmap(node, held_descriptor);
    held_descriptor = -1;
}

const char *lab_words(int code)
{
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires reset";
    case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case VERSION_MISMATCH: return "Argument version mismatch";
    case DEPRECATED: return "Requested functionality has been deprecated";
    default: return "Unknown Error";
    }
}

unsigned lab_branch(const struct lab_node *node) { return (unsigned)atoi(node->driver); }

int lab_alive(const struct lab_card *card)
{
    if (card->faults & CARD_LOST)
        return GPU_IS_LOST;
    return card->faults & CARD_RESET ? RESET_REQUIRED : OK;
}

/* A reading: `has` says whether the card has it at all. */
static int give(const struct lab_card *card, int has, unsigned value, unsigned *out)
{
    int code = lab_alive(card);
    if (code == OK && !has)
        code = NOT_SUPPORTED;
    if (code == OK)
        *out = value;
    return code;
}

static int watts_read(const struct lab_card *card) { return !(card->faults & CARD_NA); }

unsigned lab_enforced_mw(const struct lab_card *card)
{
    return card->bmc_mw && card->bmc_mw < card->requested_mw ? card->bmc_mw : card->requested_mw;
}

int lab_limit(const struct lab_card *card, unsigned *out) { return give(card, card->default_mw && watts_read(card), card->requested_mw, out); }
int lab_enforced(const struct lab_card *card, unsigned *out) { return give(card, card->default_mw && watts_read(card), lab_enforced_mw(card), out); }

int lab_default(const struct lab_card *card, unsigned *out)
{
    int code = lab_alive(card);
    if (code == OK && card->faults & CARD_UNKNOWN_DEFAULT)
        return UNKNOWN;
    return give(card, card->default_mw && watts_read(card), card->default_mw, out);
}

int lab_least(const struct lab_card *card, unsigned *out) { return give(card, card->min_mw && watts_read(card), card->min_mw, out); }
int lab_most(const struct lab_card *card, unsigned *out) { return give(card, card->max_mw && watts_read(card), card->max_mw, out); }

/* NVML: an average over one second from Ampere on, an instant before. */
int lab_power(const struct lab_card *card, unsigned *out)
{
    return give(card, watts_read(card), card->architecture >= AMPERE ? card->average_mw : card->power_mw, out);
}

int lab_average(const struct lab_node *node, const struct lab_card *card, unsigned *out)
{
    return give(card, lab_branch(node) >= 530 && card->architecture >= AMPERE && watts_read(card), card->average_mw, out);
}

int lab_instant(const struct lab_node *node, const struct lab_card *card, unsigned *out)
{
    return give(card, lab_branch(node) >= 530 && card->architecture >= VOLTA && watts_read(card), card->power_mw, out);
}

int lab_energy(const struct lab_card *card, unsigned long long *out)
{
    int code = lab_alive(card);
    if (code == OK && !(card->can & CAN_ENERGY))
        code = NOT_SUPPORTED;
    if (code == OK)
        *out = card->energy_mj;
    return code;
}

/* A Jetson's own graphics processor answers NVML with its name and little else. */
static int plain(const struct lab_card *card) { return !(card->faults & CARD_NVGPU); }

int lab_sm(const struct lab_card *card, unsigned *out) { return give(card, plain(card), card->sm_mhz, out); }
int lab_memory_clock(const struct lab_card *card, unsigned *out) { return give(card, card->memory_mhz, card->memory_mhz, out); }
int lab_sm_max(const struct lab_card *card, unsigned *out) { return give(card, card->sm_max_mhz, card->sm_max_mhz, out); }
int lab_memory_max(const struct lab_card *card, unsigned *out) { return give(card, card->memory_max_mhz, card->memory_max_mhz, out); }
int lab_fan(const struct lab_card *card, unsigned *out) { return give(card, card->can & CAN_FAN, card->fan_percent, out); }
int lab_temperature(const struct lab_card *card, unsigned *out) { return give(card, plain(card), card->temperature_c, out); }
int lab_target(const struct lab_card *card, unsigned *out) { return give(card, card->can & CAN_TARGET, card->target_c, out); }

int lab_memory_temperature(const struct lab_card *card, unsigned *out)
{
    return give(card, card->can & CAN_MEMORY_TEMPERATURE, card->memory_temperature_c, out);
}

int lab_utilization(const struct lab_card *card, unsigned *gpu, unsigned *memory)
{
    int code = give(card, card->can & CAN_UTILIZATION, card->utilization_percent, gpu);
    if (code == OK)
        *memory = card->memory_utilization_percent;
    return code;
}

int lab_used(const struct lab_card *card, unsigned long long *bytes)
{
    int code = lab_alive(card);
    if (code == OK && !card->memory_total)
        return NOT_SUPPORTED;
    *bytes = 0;
    for (unsigned i = 0; i < card->holders && i < LAB_HOLDERS; i++)
        *bytes += card->holder[i].memory;
    return code;
}

static int may(const struct lab_card *card, unsigned ability)
{
    int code = lab_alive(card);
    if (code != OK)
        return code;
    if (card->faults & CARD_UNSUPPORTED || !(card->can & ability))
        return NOT_SUPPORTED;
    return may_set() && !(card->faults & CARD_NO_PERMISSION) ? OK : NO_PERMISSION;
}

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec;
}

int lab_set_limit(struct lab_card *card, unsigned milliwatts)
{
    int code = may(card, CAN_LIMIT);
    if (code == OK && (milliwatts < card->min_mw || milliwatts > card->max_mw))
        code = INVALID_ARGUMENT;
    if (code == OK) {
        card->requested_mw = milliwatts;
        card->set_at_ns = now_ns();
    }
    return code;
}

int lab_set_gpu_lock(struct lab_card *card, unsigned least, unsigned most)
{
    int code = may(card, CAN_LOCK_GPU);
    if (code == OK) {
        card->gpu_lock_min_mhz = least;
        card->gpu_lock_max_mhz = most;
        card->set_at_ns = now_ns();
    }
    return code;
}

int lab_set_memory_lock(struct lab_card *card, unsigned least, unsigned most)
{
    int code = may(card, CAN_LOCK_MEMORY);
    if (code == OK) {
        card->memory_lock_min_mhz = least;
        card->memory_lock_max_mhz = most;
        card->set_at_ns = now_ns();
    }
    return code;
}

int lab_set_persistence(struct lab_card *card, unsigned on)
{
    int code = lab_alive(card);
    if (code != OK)
        return code;
    if (!may_set() || card->faults & CARD_NO_PERMISSION)
        return NO_PERMISSION;
    card->persistence = on;
    return OK;
}

int lab_set_target(struct lab_card *card, unsigned celsius)
{
    int code = may(card, CAN_TARGET);
    if (code == OK && (celsius < card->target_min_c || celsius > card->target_max_c))
        code = INVALID_ARGUMENT;
    if (code == OK)
        card->target_c = celsius;
    return code;
}
