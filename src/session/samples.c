#include "session/samples.h"

#include "base/lock.h"
#include "base/mem.h"

#include <string.h>

struct samples {
    pthread_mutex_t table_lock; /* guards what follows */
    struct sample *all;
    size_t n, cap;
};

struct samples *samples_new(void)
{
    struct samples *s = mem_alloc(sizeof *s);
    pthread_mutex_init(&s->table_lock, NULL);
    return s;
}

static struct sample *find(struct samples *s, const char *id)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->all[i].status.id, id) == 0)
            return &s->all[i];
    }
    return NULL;
}

static struct sample *add(struct samples *s)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 16;
        s->all = mem_realloc(s->all, size_mul(s->cap, sizeof *s->all));
    }
    return &s->all[s->n++];
}

void samples_put(struct samples *s, const struct sandbox_status *status, int64_t now_ms)
{
    if (status->state == SANDBOX_NONE) {
        samples_forget(s, status->id);
        return;
    }
    AUTO_LOCK(&s->table_lock);
    struct sample *to = find(s, status->id);
    if (to == NULL)
        to = add(s);
    *to = (struct sample){.status = *status, .at_ms = now_ms};
}

void samples_forget(struct samples *s, const char *id)
{
    AUTO_LOCK(&s->table_lock);
    struct sample *gone = find(s, id);
    if (gone)
        *gone = s->all[--s->n];
}

void samples_forget_before(struct samples *s, int64_t at_ms)
{
    AUTO_LOCK(&s->table_lock);
    for (size_t i = 0; i < s->n;) {
        if (s->all[i].at_ms < at_ms)
            s->all[i] = s->all[--s->n];
        else
            i++;
    }
}

size_t samples_of(struct samples *s, const char *tenant, struct sample **out)
{
    AUTO_LOCK(&s->table_lock);
    struct sample *found = mem_alloc(size_mul(s->n + 1, sizeof *found));
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->all[i].status.tenant, tenant) == 0)
            found[n++] = s->all[i];
    }
    *out = found;
    return n;
}
