/* Test equipment: the attacker's kit. A static program that tries to get out of where it runs, one
   attempt (attack/) after the other, each in a process of its own, and says what came of it, one
   JSON line each: {"name", "succeeded", "detail"}. tests/e2e/escape.test.mjs runs it inside a
   sandbox, and on the host, where every attempt succeeds. So each of them is harmless to the host:
   what it writes is what was there, what it makes it removes, what it exhausts is bounded.

     attack NAME… KEY=VALUE…   runs these attempts ("all": every one that exhausts nothing)
     attack handle PATH        prints the file handle of PATH, for the attempt "file_handle"

   KEYs: pid (of a process outside), token and file (a file outside holds the token), disk
   (MAJOR:MINOR of the host's disk), handle, unix and abstract (sockets outside), tcp and udp (ports
   of the host's loopback), hands (pid of pi-hands), agent (its socket's path outside), uid
   (somebody else). */
#include "attack/attack.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTEMPT_SECONDS 60 /* a busy machine is slow to make many files */

static char **arguments;
char self[TEXT_MAX];

const char *value_of(const char *key)
{
    size_t n = strlen(key);
    for (char **a = arguments; *a; a++)
        if (strncmp(*a, key, n) == 0 && (*a)[n] == '=')
            return *a + n + 1;
    fprintf(stderr, "attack: %s= is missing\n", key);
    _exit(2);
}

int number_of(const char *key)
{
    return (int)strtol(value_of(key), NULL, 10);
}

const char *outcome(bool succeeded)
{
    return succeeded ? NULL : strerror(errno);
}

const char *path_of(const char *key, const char *below)
{
    static char path[TEXT_MAX];
    snprintf(path, sizeof path, "/proc/%d/%s", number_of(key), below);
    return path;
}

static const struct attempt *const parts[] = {kernel_attempts, files_attempts, sockets_attempts,
                                              hands_attempts, exhaust_attempts};

static void report(const char *name, bool succeeded, const char *detail)
{
    printf("{\"name\":\"%s\",\"succeeded\":%s,\"detail\":\"%s\"}\n", name,
           succeeded ? "true" : "false", detail);
    fflush(stdout);
}

/* The child says 's', or why not; its death says nothing. */
static void run_attempt(const struct attempt *a)
{
    int ends[2], status = 0;
    char said[TEXT_MAX] = {0};
    if (pipe(ends) < 0)
        _exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        alarm(ATTEMPT_SECONDS);
        const char *why = a->run();
        if (write(ends[1], why ? why : "s", why ? strlen(why) : 1) < 0)
            _exit(1);
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = pid > 0 ? read(ends[0], said, sizeof said - 1) : -1;
    close(ends[0]);
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (n <= 0)
        snprintf(said, sizeof said, "it ended with status %d", status);
    report(a->name, strcmp(said, "s") == 0, strcmp(said, "s") == 0 ? "" : said);
}

static bool wanted(const struct attempt *a)
{
    for (char **w = arguments; *w; w++)
        if (strcmp(*w, a->name) == 0 || (strcmp(*w, "all") == 0 && !a->exhausts))
            return true;
    return false;
}

int main(int argc, char **argv)
{
    arguments = argv + 1;
    if (argc == 2 && strcmp(argv[1], "euid") == 0)
        return geteuid() != 0;
    if (argc == 3 && strcmp(argv[1], "handle") == 0)
        return print_handle(argv[2]);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return 1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const struct attempt *a = parts[i]; a->name; a++)
            if (wanted(a))
                run_attempt(a);
    return 0;
}
