cd /work/m && git fetch -q /work/main main
