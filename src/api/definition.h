/* What agents and environments have in common: a definition (JSON) under an id, with a name that no
   other of the tenant has; made, changed, archived and shown. What differs is in one struct
   definition_kind each. Workers only; the handlers reply. */
#ifndef API_DEFINITION_H
#define API_DEFINITION_H

#include "base/id.h"
#include "base/json.h"
#include "db/db.h"

struct ctx;

struct definition {
    char id[ID_MAX];
    json_t *body;                                /* whoever holds the struct owns it */
    int64_t created_at, updated_at, archived_at; /* archived_at: -1 if it is not */
    int64_t version, version_created_at;         /* of agents; else 1 and as made */
};

struct definition_kind {
    const char *article, *noun;
    const char *id_prefix;
    const char *archived_code; /* of the conflict when it is to change all the same */
    const char *sql_archive;   /* $1 tenant, $2 id, $3 now; changes nothing the second time */
    /* The newest version. E_NOT_FOUND also for another tenant's. */
    err (*find)(struct db_conn *c, const char *tenant, struct str id, struct definition *out);
    /* Omitted = kept, null = back to the default, a value = replaced whole (§6.3). */
    void (*apply)(json_t *body, const json_t *changes);
    /* Of a whole body: what no member alone shows. It may complete it. */
    err (*check)(struct ctx *ctx, struct db_conn *c, json_t *body);
    err (*insert)(struct ctx *ctx, struct db_conn *c, const struct definition *d);
    /* Applies the request's body, checks and writes. */
    err (*update)(struct ctx *ctx, struct db_conn *c, struct definition *d);
    json_t *(*show)(struct definition *d); /* takes the body */
};

/* Handlers, after the request's fields were checked. */
err definition_create(struct ctx *ctx, const struct definition_kind *kind);
err definition_update(struct ctx *ctx, const struct definition_kind *kind);
err definition_archive(struct ctx *ctx, const struct definition_kind *kind); /* twice is once */
err definition_get(struct ctx *ctx, const struct definition_kind *kind);

/* What writing a name came to: a conflict becomes name_taken. */
err definition_name_taken(const struct definition_kind *kind, err e, const json_t *body);

#endif
