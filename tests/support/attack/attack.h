/* The parts of the attacker's kit (attack.c): each has a table of attempts, ended by .name NULL. */
#ifndef TESTS_SUPPORT_ATTACK_H
#define TESTS_SUPPORT_ATTACK_H

#include <stdbool.h>

#define TEXT_MAX 4096

struct attempt {
    const char *name;
    const char *(*run)(void); /* NULL when it succeeded, else what stopped it */
    bool exhausts;            /* not part of "all" */
};

extern const struct attempt kernel_attempts[], files_attempts[], sockets_attempts[],
    hands_attempts[], exhaust_attempts[];

/* attack.c */
extern char self[TEXT_MAX];            /* the path of this program */
const char *value_of(const char *key); /* of KEY=VALUE; exits when it was not given */
int number_of(const char *key);
const char *outcome(bool succeeded); /* what an attempt returns; errno says why not */
const char *path_of(const char *key,
                    const char *below); /* of /proc/<pid>; the next call's is it too */

/* kernel.c: to the process whose pid is the value of `key` */
const char *seize(const char *key);
/* files.c */
int print_handle(const char *path);

#endif
