/* nvidia-smi in parts: settings, the CSV queries, the long log, the table. Each returns the exit code. */
#ifndef SMI_H
#define SMI_H
#include "lab.h"

struct smi {
    struct lab_node node;
    unsigned chosen[LAB_CARDS];  /* indices of the cards that this call is about */
    unsigned count;
    int everything;              /* no -i was given */
};

int smi_set(struct smi *smi, const char *option, const char *value);
int smi_query_gpu(const struct smi *smi, char *fields, const char *format);
int smi_query_apps(const struct smi *smi, char *fields, const char *format);
int smi_log(const struct smi *smi, const char *sections, int xml);
int smi_table(const struct smi *smi);
int smi_list(const struct smi *smi);
int smi_version(const struct smi *smi);
int smi_lost(const struct smi *smi);
const char *smi_cell(const struct smi *smi, int code);
void smi_bus(const struct lab_card *card, char *text, unsigned size);
#endif
