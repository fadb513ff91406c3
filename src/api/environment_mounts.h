/* `mounts` of an environment (§6.2, R48; sandbox/mounts.h): what one may say, and whether the
   provider and the operator's list let it be mounted here. */
#ifndef API_ENVIRONMENT_MOUNTS_H
#define API_ENVIRONMENT_MOUNTS_H

#include "api/fields.h"

/* An item of the list, and the check of a list of them; the context is the service. Asks the
   parent, so not inside a transaction. */
extern const struct field environment_mount_field;
void environment_check_mounts(struct fields *f, const json_t *value);
/* Says of each mount whether it is read-only: a bind is, unless it says otherwise. */
void environment_fill_mounts(json_t *definition);

#endif
