/* Globs with the meaning ripgrep and fd give them, where a wildcard never matches a slash: ? * **
   with [sets] {alternatives} \escapes. Compiled to a small automaton over bytes, so matching takes
   time in proportion to pattern times text whatever the pattern says. Immutable once made: any
   thread. */
#ifndef HANDS_GLOB_H
#define HANDS_GLOB_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>

#define GLOB_STATES_MAX 16384

struct glob;

struct glob_options {
    bool ignore_case;        /* ASCII letters */
    bool open_class_literal; /* a [ that is never closed stands for itself (as in .gitignore) */
};

/* NULL for a pattern that is none; *why gets the words fd has for it. */
struct glob *glob_new(struct str pattern, struct glob_options options, struct buf *why);
void glob_free(struct glob *g); /* NULL-safe */
bool glob_matches(const struct glob *g, struct str text);
/* Whether it names a capital letter (fd: such a pattern is matched with case). */
bool glob_has_capital(const struct glob *g);

#endif
