/* Trying a key at its provider (§8.5 validate): a guarded GET that costs nothing, where a model
   request of such a session would go, on a thread of its own. */
#ifndef BROKER_KEY_CHECK_H
#define BROKER_KEY_CHECK_H

#include "base/json.h"

/* A credential_check message; `env` is a struct exchange_env. Answers credential_checked in time,
   whatever happens. Does not block. */
void key_check_begin(void *env, const json_t *message);

#endif
