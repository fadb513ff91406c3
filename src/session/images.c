#include "session/images.h"

#include <stdio.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"

#define AT_A_TIME 2
#define LOOK_AGAIN_MS 60000

/* One image that is being made; in the list until it is done. */
struct making {
    struct making *next;
    char tenant[ID_MAX], image[SANDBOX_IMAGE_MAX], packages[PACKAGES_TEXT_MAX];
    unsigned users; /* freed by the last */
    bool done;
    struct err_slot failed; /* .e == 0: it is there */
    char result[SANDBOX_IMAGE_MAX];
};

struct images {
    struct parent_link *parent;
    const struct clock *clock;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct making *first;
    unsigned running;
};

struct images *images_new(struct parent_link *parent, const struct clock *clock)
{
    struct images *i = mem_alloc(sizeof *i);
    i->parent = parent;
    i->clock = clock;
    pthread_mutex_init(&i->lock, NULL);
    cond_init(&i->changed);
    return i;
}

/* With the lock held. */
static struct making *find(struct images *i, const char *image, const char *packages)
{
    for (struct making *m = i->first; m; m = m->next) {
        if (strcmp(m->image, image) == 0 && strcmp(m->packages, packages) == 0)
            return m;
    }
    return NULL;
}

static struct making *add(struct images *i, const char *tenant, const char *image,
                          const char *packages)
{
    struct making *m = mem_alloc(sizeof *m);
    snprintf(m->tenant, sizeof m->tenant, "%s", tenant);
    snprintf(m->image, sizeof m->image, "%s", image);
    snprintf(m->packages, sizeof m->packages, "%s", packages);
    m->next = i->first;
    i->first = m;
    return m;
}

static void unlist(struct images *i, const struct making *m)
{
    struct making **at = &i->first;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
}

static err ask_parent(struct images *i, struct making *m)
{
    struct parent_message *call = mem_alloc(sizeof *call);
    struct parent_image *image = &call->image;
    call->verb = PARENT_IMAGE_PREPARE;
    id_new("build", clock_wall_ms(i->clock), image->spec.id);
    memcpy(image->spec.tenant, m->tenant, sizeof image->spec.tenant);
    memcpy(image->spec.image, m->image, sizeof image->spec.image);
    memcpy(image->packages, m->packages, sizeof image->packages);
    err e = parent_call(i->parent, call, NULL);
    if (!e)
        memcpy(m->result, image->spec.image, sizeof m->result);
    mem_free(call);
    return e;
}

/* With the lock held, which is let go meanwhile. */
static void make(struct images *i, struct making *m)
{
    while (i->running >= AT_A_TIME)
        cond_wait_ms(&i->changed, &i->lock, LOOK_AGAIN_MS);
    i->running++;
    pthread_mutex_unlock(&i->lock);
    if (ask_parent(i, m))
        err_save(&m->failed);
    pthread_mutex_lock(&i->lock);
    i->running--;
    m->done = true;
    unlist(i, m);
    pthread_cond_broadcast(&i->changed);
}

err images_prepare(struct images *i, const char *tenant, const char *image, const char *packages,
                   char out_image[SANDBOX_IMAGE_MAX])
{
    AUTO_LOCK(&i->lock);
    struct making *m = find(i, image, packages);
    bool first = m == NULL;
    if (first)
        m = add(i, tenant, image, packages);
    m->users++;
    if (first)
        make(i, m);
    while (!m->done)
        cond_wait_ms(&i->changed, &i->lock, LOOK_AGAIN_MS);
    struct err_slot failed = m->failed;
    if (!failed.e)
        memcpy(out_image, m->result, SANDBOX_IMAGE_MAX);
    if (--m->users == 0)
        mem_free(m);
    return failed.e ? err_restore(&failed) : 0;
}
