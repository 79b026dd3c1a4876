# After a cold boot /dev/nvidia-uvm comes late, or only when somebody asks for it: ask, and wait for it up to $1 seconds.
left=$1
until [ -c /dev/nvidia-uvm ]; do
    nvidia-modprobe -u -c0 2>/dev/null && [ -c /dev/nvidia-uvm ] && exit 0
    if [ "$left" -le 0 ]; then
        echo "error: /dev/nvidia-uvm is not there after $1 s: nvidia-modprobe -u -c0 and dmesg tell why" >&2
        exit 1
    fi
    sleep 1
    left=$((left - 1))
done
