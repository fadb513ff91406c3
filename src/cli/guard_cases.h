/* Files of cases for the dial guard, shaped like tests/vectors/ssrf_public.json: {cases: [{id,
   policy, url, dns: {name: [address]}, redirects: [location], verdict: "allow" | "deny",
   also_acceptable?}]}. Names stand for what the case says, everything else is the broker's own
   code. */
#ifndef CLI_GUARD_CASES_H
#define CLI_GUARD_CASES_H

#include "base/err.h"
#include "base/json.h"
#include "broker/dial.h"

#include <stdio.h>

struct guard_tally {
    size_t passed, failed;
};

/* Writes a line for each case that failed. E_INVALID when the file has another shape. */
err guard_cases_run(const json_t *file, FILE *report, struct guard_tally *out);

/* "fetch", "webhook" or "model". */
bool guard_policy_find(const char *name, enum dial_policy *out);

#endif
