#include "session/volumes.h"

#include "base/log.h"
#include "session/volume_rows.h"

#include <stdio.h>

#define BATCH 100      /* of one sweep */
#define SWEEP_MS 10000 /* nothing is begun after so long: idle sandboxes wait to be stopped */

static err ask_parent(struct parent_link *parent, enum parent_verb verb, const char *tenant,
                      const char *id, uint64_t *out_bytes)
{
    struct parent_message m = {.verb = verb};
    snprintf(m.sandbox.spec.id, sizeof m.sandbox.spec.id, "%s", id);
    snprintf(m.sandbox.spec.tenant, sizeof m.sandbox.spec.tenant, "%s", tenant);
    TRY(parent_call(parent, &m, NULL));
    if (out_bytes)
        *out_bytes = m.volume_bytes;
    return 0;
}

/* ---- measuring ---- */

struct measured {
    const struct volume_ref *ref;
    int64_t bytes, now_ms;
};

static err write_measured(struct db_conn *c, void *arg)
{
    const struct measured *m = arg;
    return volume_row_measured(c, m->ref, m->bytes, m->now_ms);
}

static err measure(struct parent_link *parent, struct db *db, const struct clock *clock,
                   const struct volume_ref *ref)
{
    uint64_t bytes = 0;
    TRY(ask_parent(parent, PARENT_VOLUME_MEASURE, ref->tenant, ref->id, &bytes));
    struct measured m = {ref, (int64_t)bytes, clock_wall_ms(clock)};
    return db_write(db, write_measured, &m);
}

struct look {
    const char *tenant, *id;
    struct volume_ref ref;
    bool found;
};

static err look_at(struct db_conn *c, void *arg)
{
    struct look *l = arg;
    return volume_row_unmeasured(c, l->tenant, l->id, &l->ref, &l->found);
}

err volume_measure(struct parent_link *parent, struct db *db, const struct clock *clock,
                   const char *tenant, const char *id)
{
    struct look l = {.tenant = tenant, .id = id};
    TRY(db_read(db, look_at, &l));
    return l.found ? measure(parent, db, clock, &l.ref) : 0;
}

/* ---- removing ---- */

static err forget(struct db_conn *c, void *arg)
{
    const struct look *l = arg;
    return volume_row_forget(c, l->tenant, l->id);
}

err volume_remove(struct parent_link *parent, struct db *db, const char *tenant, const char *id)
{
    struct look l = {.tenant = tenant, .id = id};
    TRY(ask_parent(parent, PARENT_VOLUME_REMOVE, tenant, id, NULL));
    return db_write(db, forget, &l);
}

/* ---- sweeping ---- */

struct batch {
    err (*find)(struct db_conn *c, size_t limit, struct volume_ref *out, size_t *out_n);
    struct volume_ref refs[BATCH];
    size_t n;
};

static err find_batch(struct db_conn *c, void *arg)
{
    struct batch *b = arg;
    return b->find(c, BATCH, b->refs, &b->n);
}

err volumes_sweep(struct parent_link *parent, struct db *db, const struct clock *clock)
{
    struct batch going = {.find = volume_rows_deleting};
    struct batch changed = {.find = volume_rows_unmeasured};
    int64_t until_ms = clock_monotonic_ms(clock) + SWEEP_MS;
    TRY(db_read(db, find_batch, &going));
    for (size_t i = 0; i < going.n && clock_monotonic_ms(clock) < until_ms; i++)
        if (volume_remove(parent, db, going.refs[i].tenant, going.refs[i].id))
            log_warn("the volume %s is removed later: %s", going.refs[i].id, err_text());
    TRY(db_read(db, find_batch, &changed));
    for (size_t i = 0; i < changed.n && clock_monotonic_ms(clock) < until_ms; i++)
        if (measure(parent, db, clock, &changed.refs[i]))
            log_warn("cannot measure the volume %s: %s", changed.refs[i].id, err_text());
    return 0;
}
