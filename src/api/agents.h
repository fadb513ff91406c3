/* Agent definitions (§6.1): what is shared with sessions.c, whose overrides have the same members.
 */
#ifndef API_AGENTS_H
#define API_AGENTS_H

#include "api/fields.h"
#include "base/arena.h"
#include "db/db.h"

struct catalog;

/* Members of a definition that a session may override. Checks need the
   catalogue as context. */
extern const struct field agent_override_fields[];
/* …and those that may change while a session lives (§6.3). */
extern const struct field agent_session_fields[];
extern const struct field agent_create_fields[], agent_update_fields[];

/* Sets the members that `changes` has: omitted = kept, null = back to the default, a value =
   replaced whole (§6.3). Every member is there afterwards; changes may be NULL. */
void agent_apply(json_t *definition, const json_t *changes);
/* E_INVALID when members of a complete definition do not fit together. */
err agent_check_whole(const json_t *definition);
/* E_INVALID (not_supported) when the definition has what no session can run yet. */
err agent_check_runnable(const json_t *definition);

struct agent_found {
    char id[48];
    int64_t version;
    json_t *definition; /* the caller's */
    bool archived;
};
/* version 0: the newest. E_NOT_FOUND for unknown agents and versions. */
err agent_find(struct db_conn *c, const char *tenant, struct str id, int64_t version,
               struct agent_found *out);

#endif
