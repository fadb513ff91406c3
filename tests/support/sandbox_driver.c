/* Test equipment: a sandbox without a service. Usage: sandbox_driver DATA ID MEMORY_MIB PIDS
   DISK_MIB DATA exists and holds runtime/rg. Reads verbs from standard input, one a line (start,
   stop, destroy), and answers each with a line: "ok AGENT_SOCKET" or "failed REASON". At end of
   file it destroys the sandbox. */
#include "sandbox/provider.h"

#include "base/str.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sandbox_spec spec = {.tenant = "tenant_escape", .image = "host"};
static char dir[PATH_MAX], agent[PATH_MAX], images[PATH_MAX], runtime[PATH_MAX];
static struct sandbox_place place = {.dir = dir,
                                     .socket = agent,
                                     .uid_base = 70000000,
                                     .runtime = runtime,
                                     .images = images,
                                     .allow_unenforced = true};

static err do_verb(const char *verb)
{
    const struct sandbox_provider *p = sandbox_provider_named("linux");
    if (strcmp(verb, "start") == 0) {
        TRY(p->create(&spec, &place));
        return p->start(&spec, &place);
    }
    if (strcmp(verb, "stop") == 0)
        return p->stop(&spec, &place, 0);
    return p->destroy(&spec, &place);
}

/* As the parent has it: a process for each verb. */
static void serve_verb(const char *verb)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (do_verb(verb))
            printf("failed %s\n", err_text());
        else
            printf("ok %s\n", agent);
        fflush(NULL);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static void join(char out[PATH_MAX], const char *a, const char *b)
{
    if (snprintf(out, PATH_MAX, "%s/%s", a, b) >= PATH_MAX)
        exit(2);
}

int main(int argc, char **argv)
{
    uint64_t memory, pids, disk;
    if (argc != 6 || !str_to_u64(str_of(argv[3]), &memory) || !str_to_u64(str_of(argv[4]), &pids) ||
        !str_to_u64(str_of(argv[5]), &disk)) {
        fprintf(stderr, "usage: sandbox_driver DATA ID MEMORY_MIB PIDS DISK_MIB\n");
        return 2;
    }
    char sandboxes[PATH_MAX], line[64];
    snprintf(spec.id, sizeof spec.id, "%s", argv[2]);
    spec.memory_mib = (uint32_t)memory;
    spec.pids = (uint32_t)pids;
    spec.disk_mib = (uint32_t)disk;
    place.socket_owner = geteuid();
    join(sandboxes, argv[1], "sandboxes");
    join(dir, sandboxes, spec.id);
    join(agent, dir, "agent.sock");
    join(images, argv[1], "images");
    join(runtime, argv[1], "runtime");
    mkdir(sandboxes, 0755);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        serve_verb(line);
    }
    serve_verb("destroy");
    return 0;
}
